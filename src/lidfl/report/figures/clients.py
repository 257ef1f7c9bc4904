"""The clients of a run one by one: what each holds of each class, and what each deploys."""

from collections.abc import Sequence

import altair as alt

from lidfl.report.figures.base import BLUE, VERMILLION, Drawing, Figure, Key, Panel, Row, chart_of
from lidfl.report.words import counted
from lidfl.runs.clients import ClientTold

HONEST, BYZANTINE = "honest", "Byzantine"


def deployed_figure(clients: Sequence[ClientTold]) -> Figure | None:
    """What each honest client deploys, from the worst to the best; None if nobody has told."""
    known = sorted((c.deployed, c.client) for c in clients if c.deployed is not None)
    if not known:
        return None
    rows: list[Row] = [
        {"place": place, "client": client, "accuracy": round(accuracy, 4)}
        for place, (accuracy, client) in enumerate(known, start=1)
    ]
    mean = sum(accuracy for accuracy, _ in known) / len(known)
    caption = (
        f"Each bar is one of {counted(len(known), 'honest client')}, by the test accuracy of what it deploys: from "
        f"{known[0][0]:.3f} (client {known[0][1]}) to {known[-1][0]:.3f}; the line is their mean, {mean:.3f}."
    )
    return Figure("clients", "What each honest client deploys", caption, (Panel(_bars(rows, mean)),), wide=False)


def _bars(rows: Sequence[Row], mean: float) -> Drawing:
    bars = chart_of(rows).mark_bar(color=BLUE, opacity=0.8)
    x = alt.X("place:O", title="honest clients, sorted", axis=alt.Axis(labels=False, ticks=False))
    y = alt.Y("accuracy:Q", title="test accuracy", scale=alt.Scale(domain=[0, 1]))
    bars = bars.encode(x=x, y=y, tooltip=["client:N", alt.Tooltip("accuracy:Q", format=".3f")])
    return bars + chart_of([{"mean": mean}]).mark_rule(strokeDash=[5, 3]).encode(y="mean:Q")


def partition_figure(clients: Sequence[ClientTold]) -> Figure | None:
    """How many images of each class each client holds, honest clients first; None if nobody has told."""
    ordered = sorted(clients, key=lambda told: (told.byzantine, told.client))
    if not ordered or not any(map(sum, (told.labels for told in ordered))):
        return None
    rows: list[Row] = [
        {"client": told.client, "label": label, "images": number, "who": BYZANTINE if told.byzantine else HONEST}
        for told in ordered
        for label, number in enumerate(told.labels)
        if number
    ]
    order = [told.client for told in ordered]
    panel = Panel(_map(rows, order), height=min(420, max(120, 9 * len(order))))
    keys = (Key(HONEST, BLUE), Key(BYZANTINE, VERMILLION)) if any(c.byzantine for c in ordered) else ()
    return Figure("partition", "Labels of each client", _caption(ordered), (panel,), keys, wide=False)


def _map(rows: Sequence[Row], order: Sequence[int]) -> Drawing:
    colour = alt.Scale(domain=[HONEST, BYZANTINE], range=[BLUE, VERMILLION])
    return (
        chart_of(rows)
        .mark_rect()
        .encode(
            x=alt.X("label:O", title="class", axis=alt.Axis(labelAngle=0, labelOverlap=True, grid=False)),
            y=alt.Y("client:O", title="client", sort=list(order), axis=alt.Axis(labelOverlap=True, grid=False)),
            color=alt.Color("who:N", title=None, scale=colour),
            opacity=alt.Opacity("images:Q", legend=None, scale=alt.Scale(range=[0.12, 1])),
            tooltip=["client:N", "label:N", "images:Q", "who:N"],
        )
    )


def _caption(clients: Sequence[ClientTold]) -> str:
    sizes = [sum(told.labels) for told in clients]
    kinds = [sum(number > 0 for number in told.labels) for told in clients]
    held = f"{_span(sizes)} images of {_span(kinds)} classes each"
    return f"The darker, the more images of a class a client holds: {held}."


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
