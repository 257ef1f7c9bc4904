"""Accuracy over rounds in a sweep: a panel an attack, a line a method, with a band of one deviation over seeds."""

from collections import Counter
from collections.abc import Sequence

import altair as alt

from lidfl.report.figures.base import Drawing, Figure, Panel, Row, accuracy_axis, accuracy_top, chart_of, round_axis
from lidfl.report.figures.methods import CELL_TOOLTIP, cell_row, dash_of, method_styles, shown
from lidfl.report.scenes import Point, Scene, curve_of, diverged, mean_curve
from lidfl.report.words import counted, listed

TOOLTIP = ["method:N", alt.Tooltip("round:Q", format=","), *CELL_TOOLTIP]


def curves_figure(scene: Scene, drawn: Sequence[str]) -> Figure:
    """The curves of a chapter; colours go by all methods that are drawn in any chapter."""
    cells = scene.grid.cells.values()
    highest = [cell.mean + (cell.deviation or 0) for cell in cells]
    highest += [value for run in scene.runs for _, value in curve_of(run, scene.deployed)]
    top = accuracy_top(highest)
    panels = tuple(Panel(_chart(scene, attack, drawn, top), attack, 170, attack) for attack in scene.attacks)
    return Figure(
        f"curves{scene.suffix}",
        f"{'What honest clients deploy' if scene.deployed else 'Accuracy'} over rounds{scene.where}",
        _caption(scene, drawn),
        panels,
        small=len(panels) > 1,
        scene=scene.title,
    )


def has_curves(scene: Scene) -> bool:
    """Whether any of its runs were tested twice: what was tested at the end alone has no curve."""
    cells = [scene.of(method, attack) for method in scene.methods for attack in scene.attacks]
    return any(len(mean_curve(runs, deployed=scene.deployed)) > 1 for runs in cells if runs)


def _chart(scene: Scene, attack: str, methods: Sequence[str], top: float) -> Drawing:
    """A dot marks where a curve ends before the others; one that was tested once is nothing but its dot."""
    keys = method_styles(methods).values()
    colours = alt.Scale(domain=list(methods), range=[key.colour for key in keys])
    dashes = alt.Scale(domain=list(methods), range=[dash_of(key) for key in keys])
    parameter, test = shown(methods)
    colour = alt.Color("method:N", title=None, scale=colours)
    base = chart_of(_rows(scene, attack, methods)).transform_filter(test)
    base = base.encode(x=round_axis(scene.rounds), color=colour)
    band = base.mark_area(opacity=0.2).encode(y=accuracy_axis("low", top), y2="high:Q")
    y = accuracy_axis("mean", top)
    dash = alt.StrokeDash("method:N", title=None, scale=dashes)
    line = base.mark_line(strokeWidth=2).encode(y=y, strokeDash=dash)
    early = base.transform_filter("datum.ends").mark_circle(size=45, opacity=1).encode(y=y)
    points = base.mark_circle(size=150, opacity=0).encode(y=y, tooltip=TOOLTIP)
    return (band + line + early + points).add_params(parameter)


def _rows(scene: Scene, attack: str, methods: Sequence[str]) -> list[Row]:
    rows: list[Row] = []
    for method in methods:
        runs = scene.of(method, attack)
        curve = mean_curve(runs, deployed=scene.deployed) if runs else []
        for point in curve:
            ends = point is curve[-1] and (point.round < scene.rounds or len(curve) == 1)
            rows.append({"method": method, "ends": ends} | _point_row(point))
    return rows


def _point_row(point: Point) -> Row:
    """A point with its band, which has no width if there is one seed."""
    mean, half = point.cell.mean, point.cell.deviation or 0
    low, high = max(0.0, mean - half), min(1.0, mean + half)
    return {"round": point.round, "low": round(low, 4), "high": round(high, 4)} | cell_row(point.cell)


def _caption(scene: Scene, drawn: Sequence[str]) -> str:
    text = "" if scene.deployed else "The best model of the list: what clients deployed over rounds was not kept. "
    text += f"{_bands(scene)} {_winners(scene)}"
    if len({run.experiment.rounds for run in scene.runs}) > 1:
        text += " A dot is the end of runs with fewer rounds than others."
    stopped = Counter(scene.method(run) for run in scene.runs if diverged(run))
    if stopped:
        names = listed([f"{counted(number, 'run')} of {method}" for method, number in sorted(stopped.items())])
        text += f" The model diverged in {names}; its accuracy is kept for the rounds left."
    here = [method for method in scene.methods if method in drawn]
    if len(here) < len(scene.methods):
        text += f" Only the {len(here)} best of {len(scene.methods)} methods are drawn; the table has them all."
    return text + _tests_drawn(scene)


def _bands(scene: Scene) -> str:
    """How many runs a line stands for."""
    numbers = sorted({len(cell.values) for cell in scene.grid.cells.values()})
    if numbers[-1] == 1:
        return "Each line is one run, so there is no band."
    seeds = counted(numbers[0], "run") if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]} runs"
    return f"Lines are means over {seeds}, bands one standard deviation to each side."


def _winners(scene: Scene) -> str:
    """Who ends highest: how often each method wins, or the ranking if there is one attack."""
    grid = scene.grid
    if len(grid.rows) == 1:
        values = [grid.cell(grid.rows[0], attack).mean for attack in grid.columns]
        span = f"{min(values):.3f}" if len(values) == 1 else f"{min(values):.3f} to {max(values):.3f}"
        return f"{grid.rows[0]} ends at {span}."
    if len(grid.columns) == 1:
        ranked = sorted(((grid.cell(row, grid.columns[0]), row) for row in grid.rows), key=lambda c: -c[0].mean)
        return f"At the end {listed([f'{row} has {cell.mean:.3f}' for cell, row in ranked if cell.values][:8])}."
    wins = Counter(scene.best_method(attack) for attack in grid.columns)
    parts = [f"{method} under {number} of {len(grid.columns)} attacks" for method, number in wins.most_common()]
    return f"Highest at the end: {listed(parts)}."


def _tests_drawn(scene: Scene) -> str:
    points = max(len(curve_of(run, scene.deployed)) for run in scene.runs)
    tested = max(-(-run.experiment.rounds // run.experiment.eval_every) for run in scene.runs)
    return f" Of up to {tested:,} tests of a run up to {points} are drawn." if tested > points else ""
