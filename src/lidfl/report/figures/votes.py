"""The votes of each round, by the origin of those who got them."""

from collections import Counter
from statistics import fmean

import altair as alt

from lidfl.report.figures.base import (
    ORIGIN_COLOURS,
    Drawing,
    Figure,
    Panel,
    Row,
    chart_of,
    every,
    origin_colour,
    origin_keys,
    round_axis,
)
from lidfl.report.lineage import Lineage, Origin
from lidfl.report.read import RunRecords
from lidfl.report.words import listed, percent, thinned
from lidfl.runs.record import RoundRecord

TOOLTIP = [
    alt.Tooltip("number:Q", title="round", format=","),
    "model:N",
    "votes:Q",
    alt.Tooltip("origin:N", title="it is"),
    "fate:N",
]
DESCRIPTIONS = {
    Origin.CLEAN: "that no attacker had touched",
    Origin.TAINTED: "trained honestly on a poisoned ancestor",
    Origin.POISONED: "with an attacker's update",
}


def votes_figure(run: RunRecords) -> Figure | None:
    """A bar a round, cut into its candidates; None if no vote was held."""
    if not run.experiment.keeps_list:
        return None
    keys = origin_keys(life.origin for life in run.lineage.lives.values())
    panel = Panel(_chart(run), height=200)
    return Figure("votes", "Votes for each candidate", _caption(run), (panel,), keys)


def _chart(run: RunRecords) -> Drawing:
    records, step = every(run.records)
    bars = chart_of(row for record in records for row in _bar(record, run.lineage, step))
    return bars.mark_rect().encode(
        x=round_axis(run.rounds_done),
        x2="until:Q",
        y=alt.Y("from:Q", title="votes", scale=alt.Scale(nice=False), axis=alt.Axis(tickMinStep=1)),
        y2="to:Q",
        color=origin_colour(),
        opacity=alt.condition(alt.datum.first, alt.value(1), alt.value(0.65)),
        tooltip=TOOLTIP,
    )


def _bar(record: RoundRecord, lineage: Lineage, width: int) -> list[Row]:
    """The candidates of a round on top of each other: clean ones first, and of one origin the most voted first."""
    order = list(ORIGIN_COLOURS)
    cast = [(lineage.lives[model], votes) for model, votes in record.votes.items() if votes]
    bar = {"round": max(0, record.number - width), "until": record.number, "number": record.number}
    rows: list[Row] = []
    for life, votes in sorted(cast, key=lambda one: (order.index(one[0].origin), -one[1])):
        below = rows[-1]["to"] if rows else 0
        piece = {"from": below, "to": below + votes, "model": life.model, "votes": votes, "origin": life.origin}
        fate = "voted out" if life.gone == record.number else "stays"
        first = not rows or rows[-1]["origin"] is not life.origin
        rows.append(bar | piece | {"fate": fate, "first": first})
    return rows


def _caption(run: RunRecords) -> str:
    voters, attackers = run.experiment.num_clients, run.experiment.num_byzantine
    who = f"{attackers} of {voters} voters are attackers." if attackers else f"All {voters} voters are honest."
    bars = f"A bar is a round, a piece of it a candidate.{thinned(every(run.records)[1], 'round')}"
    return " ".join([who, _shares(run), *_votes_of_removed(run), bars])


def _shares(run: RunRecords) -> str:
    """How many of the first choices went to models of which origin."""
    cast: Counter[Origin] = Counter()
    for record in run.records:
        for model, votes in record.votes.items():
            cast[run.lineage.lives[model].origin] += votes
    shares = [
        f"{percent(cast[origin] / cast.total())} to models {DESCRIPTIONS[origin]}"
        for origin in Origin
        if cast[origin]
    ]
    return f"First choices went {listed(shares)}." if shares else "No vote was cast."


def _votes_of_removed(run: RunRecords) -> list[str]:
    found = [votes for record in run.records for model, votes in record.votes.items() if model in record.removed]
    if not found:
        return []
    return [f"A model that was voted out had {fmean(found):.1f} votes on average, {max(found)} at most."]
