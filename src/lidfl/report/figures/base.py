"""What figures are made of: colours, legends, panels, axes, and fewer rows to draw."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Any, TypeAlias, TypeVar

import altair as alt

from lidfl.report.lineage import Origin

Drawing: TypeAlias = alt.Chart | alt.LayerChart
Row = dict[str, Any]
"""What a chart draws: a value for each field."""
T = TypeVar("T")

# The colours of Okabe and Ito, which people with any colour vision tell apart; without black and yellow, one of
# which is lost on a dark page and the other on a white one.
BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
SKY, ORANGE, GREY = "#56B4E9", "#E69F00", "#8C8C8C"
ORIGIN_COLOURS = {Origin.CLEAN: BLUE, Origin.TAINTED: SKY, Origin.POISONED: VERMILLION}

MOST_POINTS = 150
"""How many rounds of a run are drawn one by one."""


@dataclass(frozen=True)
class Key:
    """An entry of a legend: what a mark stands for."""

    label: str
    colour: str
    shape: str = "dot"
    """dot, line or dashed; methods are dash0 to dash6."""


@dataclass(frozen=True)
class Panel:
    """One chart of a figure."""

    chart: Drawing
    title: str = ""
    height: int = 220
    group: str = ""
    """What a reader may choose to see alone, such as an attack."""


@dataclass(frozen=True)
class Figure:
    """A picture with its caption: one chart, several below each other, or small ones side by side."""

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    keys: tuple[Key, ...] = ()
    small: bool = False
    """Whether the panels stand side by side."""
    wide: bool = True
    """Whether it takes the whole width of a large screen, or half."""
    scene: str = ""
    """The chapter of a sweep that it belongs to."""


def every(rows: Sequence[T], limit: int = MOST_POINTS) -> tuple[list[T], int]:
    """At most `limit` rows, evenly spaced and with the last one; and the step: every how many of them."""
    step = max(1, -(-len(rows) // limit))
    return list(rows[::-1][::step][::-1]), step


def chart_of(rows: Iterable[Row], **properties: Any) -> alt.Chart:
    """A chart that is still to be given its marks."""
    return alt.Chart(alt.Data(values=list(rows)), **properties)


def origin_keys(origins: Iterable[Origin]) -> tuple[Key, ...]:
    """The legend of the origins that a figure shows."""
    found = set(origins)
    return tuple(Key(origin.value, colour) for origin, colour in ORIGIN_COLOURS.items() if origin in found)


def origin_colour() -> alt.Color:
    """Colour by what the simulator knows of a model."""
    names, colours = [origin.value for origin in ORIGIN_COLOURS], list(ORIGIN_COLOURS.values())
    return alt.Color("origin:N", title=None, scale=alt.Scale(domain=names, range=colours))


def round_axis(last: int) -> alt.X:
    """Rounds from the first to the last, the same in every figure of a run."""
    axis = alt.Axis(grid=False, format=",d", tickMinStep=1, tickCount=6)
    return alt.X("round:Q", title="round", scale=alt.Scale(domain=[0, last], nice=False), axis=axis)


def accuracy_axis(field: str, top: float) -> alt.Y:
    """Test accuracy from 0 to a full tenth."""
    return alt.Y(f"{field}:Q", title="test accuracy", scale=alt.Scale(domain=[0, top], nice=False))


def accuracy_top(values: Iterable[float]) -> float:
    """Where an axis of accuracy ends: at the next full tenth above all values."""
    return min(1.0, ceil(10.2 * max(values, default=1.0)) / 10) or 0.1


def log_ticks(span: Sequence[float]) -> list[float]:
    """Round numbers for a logarithmic axis from the lowest value to the highest.

    They are 1, 2, 3 and 5 with their tens, or more digits if these are too few. If there are three values, the axis
    is compressed above the second, and has tens alone from there on.
    """
    low, high, *top = span
    tens = range(floor(log10(low)), ceil(log10(span[-1])) + 1)
    for digits in (1, 2, 3, 5), (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8):
        found = [digit * 10.0**ten for ten in tens for digit in digits if low <= digit * 10.0**ten <= high]
        if len(found) > 2:
            break
    else:
        found = [float(f"{low + (high - low) * part / 4:.3g}") for part in range(1, 4)]
    above = [10.0**ten for ten in tens if top and 1.5 * high < 10.0**ten <= top[0]]
    return found + above[:: max(1, len(above) // 2)]
