"""The mean accuracy of each method under each attack, as a colour and a number."""

from collections.abc import Sequence

import altair as alt

from lidfl.report.figures.base import Drawing, Figure, Panel, chart_of
from lidfl.report.figures.methods import CELL_TOOLTIP, FEW_ATTACKS, cell_row, shown
from lidfl.report.scenes import Scene
from lidfl.report.words import listed

MOST_NAMED = 8
"""How many methods the caption names."""


def heat_map_figure(scene: Scene, drawn: Sequence[str]) -> Figure:
    """The heat map of a chapter, of those methods that are drawn."""
    methods = [method for method in scene.methods if method in drawn]
    panel = Panel(_chart(scene, methods), height=34 * len(methods))
    return Figure(
        f"heatmap{scene.suffix}",
        f"Method against attack{scene.where}",
        _caption(scene, methods),
        (panel,),
        wide=len(scene.attacks) > FEW_ATTACKS,
        scene=scene.title,
    )


def _chart(scene: Scene, methods: Sequence[str]) -> Drawing:
    attacks = scene.attacks
    rows = [
        {"method": method, "attack": attack} | cell_row(cell)
        for (method, attack), cell in scene.grid.cells.items()
        if method in methods
    ]
    slant = alt.Axis(labelAngle=0 if len(attacks) <= 4 else -35, labelOverlap=False, grid=False)
    parameter, test = shown(methods)
    base = chart_of(rows).transform_filter(test)
    base = base.encode(
        x=alt.X("attack:N", title=None, sort=attacks, axis=slant),
        y=alt.Y("method:N", title=None, sort=list(methods), axis=alt.Axis(grid=False)),
        tooltip=["method:N", "attack:N", *CELL_TOOLTIP],
    )
    colour = alt.Color("mean:Q", scale=alt.Scale(scheme="viridis", domain=[0, 1]), legend=None)
    ink = alt.condition(alt.datum.mean > 0.5, alt.value("black"), alt.value("white"))
    numbers = base.mark_text(fontSize=12).encode(text=alt.Text("mean:Q", format=".2f"), color=ink)
    return (base.mark_rect().encode(color=colour) + numbers).add_params(parameter)


def _caption(scene: Scene, methods: Sequence[str]) -> str:
    """What the worst attack leaves of each method."""
    worst = [(method, *scene.worst_case(method)) for method in methods[:MOST_NAMED]]
    parts = [f"{method} {mean:.3f} ({attack})" for method, mean, attack in worst]
    return f"Test accuracy of what honest clients deploy at the end. The worst attack leaves {listed(parts)}."
