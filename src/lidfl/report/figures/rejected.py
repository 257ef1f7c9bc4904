"""The strip below a family tree: how many models were voted out in the round they were born."""

from collections import Counter
from math import ceil

import altair as alt

from lidfl.report.figures.base import ORIGIN_COLOURS, Drawing, Panel, Row, chart_of, origin_colour, round_axis
from lidfl.report.lineage import Lineage

MOST_BARS = 50
TOOLTIP = [
    "rounds:N",
    alt.Tooltip("count:Q", title="voted out at birth"),
    alt.Tooltip("origin:N", title="they are"),
]


def rejected_panel(tree: Lineage) -> list[Panel]:
    """The strip; none if every model survived the round of its birth."""
    if not any(life.rejected for life in tree.candidates):
        return []
    return [Panel(_chart(tree), height=70)]


def _chart(tree: Lineage) -> Drawing:
    rows = rejected_rows(tree, width=max(1, -(-tree.rounds // MOST_BARS)))
    top = max(row["to"] for row in rows)
    axis = alt.Axis(values=sorted({0, ceil(top / 2), top}), format="d")
    return (
        chart_of(rows)
        .mark_rect()
        .encode(
            x=round_axis(tree.rounds),
            x2="until:Q",
            y=alt.Y("from:Q", title="out at birth", axis=axis, scale=alt.Scale(domain=[0, top], nice=False)),
            y2="to:Q",
            color=origin_colour(),
            tooltip=TOOLTIP,
        )
    )


def rejected_rows(tree: Lineage, width: int) -> list[Row]:
    """A bar for each `width` rounds, with the origins on top of each other."""
    out = [life for life in tree.candidates if life.rejected]
    numbers = Counter(((life.born - 1) // width * width, life.origin) for life in out)
    rows: list[Row] = []
    for start in sorted({start for start, _ in numbers}):
        end, below = min(start + width, tree.rounds), 0
        bar = {"round": start, "until": end, "rounds": f"{start + 1:,} to {end:,}"}
        for origin in ORIGIN_COLOURS:
            number = numbers[start, origin]
            if number:
                rows.append(bar | {"from": below, "to": below + number, "count": number, "origin": origin})
            below += number
    return rows
