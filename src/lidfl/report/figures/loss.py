"""The lowest mean validation loss in the list over rounds."""

from collections.abc import Iterable

import altair as alt

from lidfl.report.figures.base import BLUE, Drawing, Figure, Panel, chart_of, every, round_axis
from lidfl.report.read import RunRecords
from lidfl.report.words import thinned, went
from lidfl.runs.record import RoundRecord
from lidfl.studies.store import Curve

TOOLTIP = [alt.Tooltip("round:Q", format=","), alt.Tooltip("value:Q", title="validation loss", format=".3f")]


def loss_figure(run: RunRecords) -> Figure | None:
    """A line; None if there is no list, or if nobody knows its losses."""
    curve = lowest_losses(run.records)
    if not run.experiment.keeps_list or not curve:
        return None
    panel = Panel(_chart(curve, run.rounds_done))
    return Figure("loss", "Validation loss", _caption(curve), (panel,), wide=False)


def lowest_losses(records: Iterable[RoundRecord]) -> Curve:
    """After each round the lowest mean validation loss in the list; rounds in which none is known are left out."""
    curve = []
    for record in records:
        losses = [record.loss.get(model) for model in record.stayed]
        known = [loss for loss in losses if loss is not None]
        if known:
            curve.append((record.number, min(known)))
    return curve


def _chart(curve: Curve, rounds: int) -> Drawing:
    points, _ = every(curve)
    y = alt.Y("value:Q", title="validation loss", scale=alt.Scale(zero=False))
    base = chart_of({"round": number, "value": value} for number, value in points).encode(x=round_axis(rounds), y=y)
    return base.mark_line(strokeWidth=2, color=BLUE) + base.mark_circle(size=120, opacity=0).encode(tooltip=TOOLTIP)


def _caption(curve: Curve) -> str:
    (_, first), (_, last) = curve[0], curve[-1]
    text = f"The lowest validation loss in the list, a mean over all clients, {went(first, last)}."
    return text + thinned(every(curve)[1], "round")
