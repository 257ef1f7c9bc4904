"""What the figures of a sweep share: how methods look, and what a mark tells of its cell."""

from collections.abc import Sequence

import altair as alt

from lidfl.report.figures.base import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, Key, Row
from lidfl.studies.tables import Cell

PALETTE = (BLUE, VERMILLION, GREEN, PURPLE, SKY, ORANGE, GREY)
DASHES = ([1, 0], [5, 3])
MOST_METHODS = len(DASHES) * len(PALETTE)
"""How many lines a reader can tell apart."""
FEW_ATTACKS = 3
"""Up to how many attacks a heat map and a table have room side by side."""
CELL_TOOLTIP = [alt.Tooltip("mean:Q", format=".3f"), alt.Tooltip("deviation:N"), alt.Tooltip("runs:Q")]


def method_styles(methods: Sequence[str]) -> dict[str, Key]:
    """A colour for each method, and a dash once colours run out."""
    styles = {}
    for place, method in enumerate(methods):
        dash, colour = divmod(place, len(PALETTE))
        styles[method] = Key(method, PALETTE[colour], f"dash{dash % len(DASHES)}")
    return styles


def shown(methods: Sequence[str]) -> tuple[alt.Parameter, str]:
    """What a reader has chosen to see, and the test for a row."""
    return alt.param(name="shown", value=list(methods)), "indexof(shown, datum.method) >= 0"


def cell_row(cell: Cell) -> Row:
    """What a mark tells of a cell; one seed has no deviation."""
    deviation = "–" if cell.deviation is None else f"{cell.deviation:.3f}"
    return {"mean": round(cell.mean, 4), "deviation": deviation, "runs": len(cell.values)}
