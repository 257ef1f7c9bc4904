"""How much what honest clients deploy differs between them: the worst of them, the worst tenth, and all."""

import altair as alt

from lidfl.report.figures.base import BLUE, GREY, VERMILLION, Drawing, Figure, Key, Panel, Row, chart_of
from lidfl.report.scenes import Scene
from lidfl.report.words import listed

MEASURES = {
    "worst client": ("deployed_worst", VERMILLION),
    "worst tenth": ("deployed_worst_decile", GREY),
    "all": ("deployed_accuracy", BLUE),
}
KEYS = tuple(Key(what, colour) for what, (_, colour) in MEASURES.items())


def spread_figure(scene: Scene, drawn: list[str]) -> Figure | None:
    """A row a method; None if no run tells of its worst client."""
    rows = spread_rows(scene, drawn)
    if not rows:
        return None
    methods = list(dict.fromkeys(row["method"] for row in rows))
    panel = Panel(_chart(rows, methods), height=40 + 30 * len(methods))
    title = f"From the worst honest client to all{scene.where}"
    return Figure(f"spread{scene.suffix}", title, _caption(rows), (panel,), KEYS, wide=False, scene=scene.title)


def spread_rows(scene: Scene, drawn: list[str]) -> list[Row]:
    """For each method, in the mean over its runs, how its honest clients fare."""
    rows: list[Row] = []
    for method in (name for name in scene.methods if name in drawn):
        told = [r.summary for r in scene.runs if scene.method(r) == method and "deployed_worst" in r.summary]
        for what, (name, _) in MEASURES.items() if told else ():
            mean = sum(summary[name] for summary in told) / len(told)
            size = 260 if what == "worst client" else 90  # it is seen where the worst tenth is this one client
            rows.append(
                {"method": method, "what": what, "accuracy": round(mean, 4), "runs": len(told), "size": size}
            )
    return rows


def _chart(rows: list[Row], methods: list[str]) -> Drawing:
    colours = alt.Scale(domain=list(MEASURES), range=[colour for _, colour in MEASURES.values()])
    x = alt.X("accuracy:Q", title="test accuracy", scale=alt.Scale(domain=[0, 1], nice=False))
    y = alt.Y("method:N", title=None, sort=methods, axis=alt.Axis(grid=False))
    ends = [
        {"method": method, "low": min(values), "high": max(values)}
        for method in methods
        if (values := [row["accuracy"] for row in rows if row["method"] == method])
    ]
    bars = (
        chart_of(ends)
        .mark_rule(strokeWidth=2, opacity=0.4)
        .encode(x=alt.X("low:Q", title="test accuracy"), x2="high:Q", y=y)
    )
    dots = chart_of(rows).mark_circle(opacity=1).encode(size=alt.Size("size:Q", scale=None, legend=None))
    tooltip = ["method:N", alt.Tooltip("what:N", title="of"), alt.Tooltip("accuracy:Q", format=".3f"), "runs:Q"]
    colour = alt.Color("what:N", title=None, scale=colours)
    return bars + dots.encode(x=x, y=y, color=colour, tooltip=tooltip)


def _caption(rows: list[Row]) -> str:
    worst = [f"{row['method']} {row['accuracy']:.3f}" for row in rows if row["what"] == "worst client"]
    return f"Means over all runs of a method. The worst honest client deploys {listed(worst[:8])}."
