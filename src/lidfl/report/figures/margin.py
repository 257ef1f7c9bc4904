"""How close the votes were: how many more colluding ballots would have removed the honest favourite."""

from collections.abc import Iterable
from operator import itemgetter

import altair as alt

from lidfl.report.figures.base import GREEN, MOST_POINTS, Drawing, Figure, Panel, chart_of, round_axis
from lidfl.report.read import RunRecords
from lidfl.report.words import counted
from lidfl.runs.record import RoundRecord

Margins = list[tuple[int, int]]
"""Rounds, each with its margin in ballots."""
TOOLTIP = [alt.Tooltip("round:Q", format=","), alt.Tooltip("value:Q", title="margin")]


def margin_figure(run: RunRecords) -> Figure | None:
    """The smallest margin of each few rounds; None if no round tells one."""
    margins = told_margins(run.records)
    if not margins:
        return None
    panel = Panel(_chart(margins, run.rounds_done), height=160)
    return Figure("margin", "How close the votes were", _caption(margins), (panel,))


def told_margins(records: Iterable[RoundRecord]) -> Margins:
    """The margin of each round in which it is known."""
    return [(record.number, record.margin) for record in records if record.margin is not None]


def smallest_margin(margins: Margins) -> tuple[int, int]:
    """The first round of the closest vote, and its margin."""
    return min(margins, key=itemgetter(1))


def _width(margins: Margins) -> int:
    """How many rounds share a point of the line."""
    return max(1, -(-len(margins) // MOST_POINTS))


def _chart(margins: Margins, rounds: int) -> Drawing:
    width = _width(margins)
    closest = [smallest_margin(margins[start : start + width]) for start in range(0, len(margins), width)]
    y = alt.Y("value:Q", title="margin in ballots", axis=alt.Axis(tickMinStep=1))
    base = chart_of({"round": number, "value": margin} for number, margin in closest)
    base = base.encode(x=round_axis(rounds), y=y)
    line = base.mark_line(strokeWidth=2, color=GREEN, interpolate="step")
    return line + base.mark_circle(size=120, opacity=0).encode(tooltip=TOOLTIP)


def _caption(margins: Margins) -> str:
    number, margin = smallest_margin(margins)
    more = counted(margin, "more colluding ballot")
    text = f"The closest vote was in round {number:,}: {more} would have removed the honest favourite."
    width = _width(margins)
    return text + (f" The line shows the smallest margin of every {width} rounds." if width > 1 else "")
