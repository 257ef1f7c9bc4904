"""Where methods break down: accuracy against the Byzantine fraction, a line a method, under its worst attack."""

import re
from collections.abc import Sequence
from itertools import groupby
from math import inf

import altair as alt

from lidfl.report.figures.base import Drawing, Figure, Panel, Row, accuracy_top, chart_of
from lidfl.report.figures.methods import CELL_TOOLTIP, SHAPES, cell_row, dash_of, method_styles, shown
from lidfl.report.scenes import Scene
from lidfl.report.words import listed, percent

LABEL_GAP, LINE = 0.055, 0.045
"""How far apart the names at the ends of lines are at least, and the lines of one name, in parts of the axis."""
LONGEST_LINE = 14
"""Letters in a line of a name: on a phone there is no room for more."""
LETTER = 0.045
"""How much room beside the last points a letter of the longest name needs on a phone, in parts of the axis."""
TOOLTIP = ["method:N", alt.Tooltip("fraction:Q", title="Byzantine", format=".0%"), "attack:N", *CELL_TOOLTIP]


def breakdown_figure(chapters: Sequence[Scene], drawn: Sequence[str]) -> Figure | None:
    """A panel for each data set and model of which there are several fractions; None if there is none."""

    def world(scene: Scene) -> tuple[str, str]:
        first = scene.runs[0].experiment
        return first.dataset, first.model

    groups = [list(group) for _, group in groupby(chapters, world)]
    told = [group for group in groups if len(group) > 1]
    if not told:
        return None
    panels = tuple(
        Panel(_chart(group, drawn), "-".join(world(group[0])) if len(groups) > 1 else "", 320) for group in told
    )
    title = "Where methods break down"
    return Figure("breakdown", title, " ".join(map(_caption, told)), panels)


def breakdown_rows(chapters: Sequence[Scene], methods: Sequence[str]) -> list[Row]:
    """For each method and fraction what is left under the attack that is worst for it there."""
    rows: list[Row] = []
    for method in methods:
        for scene in chapters:
            if method in scene.methods:
                _, attack = scene.worst_case(method)
                fraction = scene.runs[0].experiment.byzantine_fraction
                cell = scene.grid.cell(method, attack)
                rows.append({"method": method, "fraction": fraction, "attack": attack} | cell_row(cell))
    return rows


def in_lines(name: str, most: int) -> list[str]:
    """A name in at most so many short lines; what has no room there is left to the legend.

    >>> in_lines("lidfl-ranked coordinated", 2), in_lines("lidfl-ranked coordinated", 1)
    (['lidfl-ranked', 'coordinated'], ['lidfl-ranked…'])
    """
    lines = [""]
    for part in re.findall(r"[^ +|]+[ +|]*", name):
        if lines[-1] and len((lines[-1] + part).rstrip()) > LONGEST_LINE:
            lines.append("")
        lines[-1] += part
    kept = [line.strip() for line in lines[:most]]
    kept[-1] += "…" if len(lines) > most else ""
    return [line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…" for line in kept]


def labels(rows: Sequence[Row], top: float) -> list[Row]:
    """The name of each method beside the end of its line, moved so that none covers another."""
    ends = {row["method"]: row for row in rows}  # the last row of each has its highest fraction
    most = max(1, int((1 / len(ends) - LABEL_GAP) / LINE) + 1)
    names = {method: in_lines(method, most) for method in ends}
    taller = {method: (len(lines) - 1) * LINE * top / 2 for method, lines in names.items()}
    bottom = -inf
    placed: list[Row] = []
    for row in sorted(ends.values(), key=lambda end: end["mean"]):
        method = row["method"]
        height = max(row["mean"], bottom + taller[method])
        bottom = height + taller[method] + LABEL_GAP * top
        placed.append({"method": method, "fraction": row["fraction"], "at": height})
    ceiling = top
    for row in reversed(placed):  # what was pushed over the top comes down again, and pushes others
        method = row["method"]
        middle = min(row["at"], ceiling - taller[method])
        ceiling = middle - taller[method] - LABEL_GAP * top
        row |= {"at": middle + taller[method], "name": "\n".join(names[method])}  # where its first line is
    return placed


def _chart(chapters: Sequence[Scene], drawn: Sequence[str]) -> Drawing:
    rows = breakdown_rows(chapters, drawn)
    top = accuracy_top(row["mean"] for row in rows)
    ends = labels(rows, top)
    keys = method_styles(drawn)
    names = list(keys)
    colour = alt.Color(
        "method:N", title=None, scale=alt.Scale(domain=names, range=[k.colour for k in keys.values()])
    )
    dash = alt.Scale(domain=names, range=[dash_of(key) for key in keys.values()])
    shape = alt.Scale(domain=names, range=[SHAPES[place % len(SHAPES)] for place in range(len(names))])
    fractions = sorted({row["fraction"] for row in rows})
    room = (fractions[-1] - fractions[0]) * min(0.6, LETTER * max(map(_width, ends)))
    x = alt.X(
        "fraction:Q",
        title="Byzantine fraction of the clients",
        scale=alt.Scale(domain=[fractions[0], fractions[-1] + room], nice=False),
        axis=alt.Axis(values=fractions, format=".0%", grid=False),
    )
    domain = alt.Scale(domain=[0, top], nice=False)
    y = alt.Y("mean:Q", title="accuracy deployed, worst attack", scale=domain)
    parameter, test = shown(drawn)
    base = chart_of(rows).transform_filter(test).encode(x=x, y=y, color=colour)
    lines = base.mark_line(strokeWidth=2).encode(strokeDash=alt.StrokeDash("method:N", title=None, scale=dash))
    points = base.mark_point(size=55, filled=True, opacity=1)
    points = points.encode(shape=alt.Shape("method:N", title=None, scale=shape), tooltip=TOOLTIP)
    text = chart_of(ends).transform_filter(test)
    text = text.mark_text(align="left", dx=8, fontSize=12, lineHeight=14, lineBreak="\n")
    named = text.encode(x=x, y=alt.Y("at:Q", scale=domain), text="name:N", color=colour)
    return (lines + points + named).add_params(parameter)


def _width(label: Row) -> int:
    """The letters of its longest line."""
    return max(map(len, label["name"].split("\n")))


def _caption(chapters: Sequence[Scene]) -> str:
    """From which fraction on which method is best, by what its worst attack leaves."""
    best = []
    for scene in chapters:
        value, method = max((scene.worst_case(method)[0], method) for method in scene.contenders)
        fraction = percent(scene.runs[0].experiment.byzantine_fraction)
        best.append(f"{method} at {fraction} ({value:.3f})")
    return (
        "What honest clients deploy at the end, each method under the attack that leaves it the least. "
        f"Best of those that anyone can run: {listed(best)}."
    )
