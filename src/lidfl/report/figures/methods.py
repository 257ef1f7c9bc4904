"""What the figures of a sweep share: how methods look, and what a mark tells of its cell."""

from collections.abc import Sequence

import altair as alt

from lidfl.report.figures.base import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, Key, Row
from lidfl.studies.tables import Cell

PALETTE = (BLUE, VERMILLION, GREEN, PURPLE, SKY, ORANGE, GREY)
DASHES = ([1, 0], [7, 3], [2, 2], [9, 3, 2, 3], [12, 5], [4, 4], [6, 2, 2, 2, 2, 2])
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")
MOST_METHODS = 2 * len(PALETTE)
"""How many lines a reader can tell apart."""
FEW_ATTACKS = 3
"""Up to how many attacks a heat map and a table have room side by side."""
CELL_TOOLTIP = [alt.Tooltip("mean:Q", format=".3f"), alt.Tooltip("deviation:N"), alt.Tooltip("runs:Q")]


def method_styles(methods: Sequence[str]) -> dict[str, Key]:
    """A colour and a dash for each method: of lines on each other, one shows through the gaps of the other."""
    return {
        method: Key(method, PALETTE[place % len(PALETTE)], f"dash{(place + place // len(PALETTE)) % len(DASHES)}")
        for place, method in enumerate(methods)
    }


def dash_of(key: Key) -> list[int]:
    """The dashes of a method's line."""
    return DASHES[int(key.shape.removeprefix("dash"))]


def shown(methods: Sequence[str]) -> tuple[alt.Parameter, str]:
    """What a reader has chosen to see, and the test for a row."""
    return alt.param(name="shown", value=list(methods)), "indexof(shown, datum.method) >= 0"


def cell_row(cell: Cell) -> Row:
    """What a mark tells of a cell; one seed has no deviation."""
    deviation = "–" if cell.deviation is None else f"{cell.deviation:.3f}"
    return {"mean": round(cell.mean, 4), "deviation": deviation, "runs": len(cell.values)}
