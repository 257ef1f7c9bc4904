"""The accuracy over rounds: of the best model, of what honest clients deploy, and of every model of the list."""

import altair as alt

from lidfl.report.figures.base import (
    Drawing,
    Figure,
    Key,
    Panel,
    Row,
    accuracy_axis,
    accuracy_top,
    chart_of,
    every,
    origin_colour,
    origin_keys,
    round_axis,
)
from lidfl.report.lineage import Lineage
from lidfl.report.read import RunRecords
from lidfl.report.words import thinned, went
from lidfl.runs.record import RoundRecord

BEST, DEPLOYED = "best model", "deployed by honest clients"
LINES = (Key(DEPLOYED, "currentColor", "line"), Key(BEST, "currentColor", "dashed"))
TOOLTIP = [
    alt.Tooltip("round:Q", format=","),
    "model:N",
    alt.Tooltip("value:Q", title="test accuracy", format=".3f"),
    alt.Tooltip("origin:N", title="it is"),
]


def accuracy_figure(run: RunRecords) -> Figure | None:
    """Two lines, and a dot for every model of the list; None if the list was never tested."""
    if not run.tested:
        return None
    keeps_list = run.experiment.keeps_list
    origins = {run.lineage.lives[model].origin for record in run.tested for model in record.accuracy}
    keys = LINES + (origin_keys(origins) if keeps_list else ())
    return Figure("accuracy", "Test accuracy", _caption(run), (Panel(_chart(run)),), keys, wide=not keeps_list)


def _chart(run: RunRecords) -> Drawing:
    records, _ = every(run.tested)
    keeps_list = run.experiment.keeps_list
    rows = [row for record in records for row in _line_rows(record)]
    x = round_axis(run.rounds_done)
    y = accuracy_axis("value", accuracy_top(row["value"] for row in rows))
    dash = alt.Scale(domain=[DEPLOYED, BEST], range=[[1, 0], [5, 3]])
    lines = chart_of(rows).mark_line(strokeWidth=2)
    lines = lines.encode(x=x, y=y, strokeDash=alt.StrokeDash("what:N", title=None, scale=dash))
    models = chart_of(row for record in records for row in _model_rows(record, run.lineage))
    dots = models.mark_circle(size=12 if len(records) > 60 else 36, opacity=0.7 if keeps_list else 0)
    colour = {"color": origin_colour()} if keeps_list else {}
    return dots.encode(x=x, y=y, tooltip=TOOLTIP, **colour) + lines


def _line_rows(record: RoundRecord) -> list[Row]:
    values = [(BEST, record.best_accuracy), (DEPLOYED, record.deployed_accuracy)]
    return [{"round": record.number, "value": value, "what": what} for what, value in values if value is not None]


def _model_rows(record: RoundRecord, lineage: Lineage) -> list[Row]:
    return [
        {"round": record.number, "model": model, "value": value, "origin": lineage.lives[model].origin}
        for model, value in record.accuracy.items()
    ]


def _caption(run: RunRecords) -> str:
    keeps_list = run.experiment.keeps_list
    text = _best_in_words(run.tested, "The best model of the list" if keeps_list else "The single model")
    deployed = run.tested[-1].deployed_accuracy
    text += "" if deployed is None else f" What honest clients deploy ended at {deployed:.3f}."
    text += " A dot is a model of the list, by its origin." if keeps_list else ""
    return text + thinned(every(run.tested)[1], "test")


def _best_in_words(tested: list[RoundRecord], subject: str) -> str:
    first, last = tested[0], tested[-1]
    if len(tested) == 1:
        return f"{subject} was tested once, in round {first.number:,}, and reached {first.best_accuracy:.3f}."
    change = went(first.best_accuracy, last.best_accuracy)
    text = f"{subject} {change} between rounds {first.number:,} and {last.number:,}"
    highest, when = max((record.best_accuracy, record.number) for record in tested)
    if highest > last.best_accuracy + 0.0005:
        text += f", with {highest:.3f} in round {when:,} as its highest"
    return f"{text}."
