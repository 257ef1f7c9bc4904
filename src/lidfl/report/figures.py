"""The figures of a report, as altair charts.

Nothing here says how wide a chart is or what colour its text has: the page and the paper each add their own.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from operator import itemgetter
from typing import Any, TypeAlias

import altair as alt

from lidfl.report.lineage import Drawn, Life, Lineage, Origin, chosen
from lidfl.report.read import MOST_POINTS, RunRecords, Scene, lowest_losses, mean_curve, percent
from lidfl.report.thinning import every

Drawing: TypeAlias = alt.Chart | alt.LayerChart
Row = dict[str, Any]

# The colours of Okabe and Ito, which people with any colour vision tell apart; without black and yellow, one of
# which is lost on a dark page and the other on a white one.
BLUE, VERMILLION, GREEN, PURPLE, SKY, ORANGE, GREY = PALETTE = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8C8C8C"),
)
ORIGIN_COLOURS = {Origin.CLEAN: BLUE, Origin.TAINTED: SKY, Origin.POISONED: VERMILLION}
DASHES = ([1, 0], [5, 3])
BEST, DEPLOYED = "best model", "deployed by honest clients"

MOST_METHODS = 2 * len(PALETTE)
"""How many lines a reader can tell apart."""

LINEAGE_HEIGHT, BEND_HEIGHT = 340, 60
"""Pixels of the lineage, and of its compressed upper part."""


@dataclass(frozen=True)
class Key:
    """An entry of a legend: what a mark stands for."""

    label: str
    colour: str
    shape: str = "dot"
    """dot or line; methods are dash0 and dash1."""


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


def origin_keys(origins: Iterable[Origin]) -> tuple[Key, ...]:
    """The legend of the origins that a figure shows."""
    shown = set(origins)
    return tuple(Key(origin.value, colour) for origin, colour in ORIGIN_COLOURS.items() if origin in shown)


def origin_colour() -> alt.Color:
    """Colour by what the simulator knows of a model."""
    colours = [*ORIGIN_COLOURS.values()]
    scale = alt.Scale(domain=[origin.value for origin in ORIGIN_COLOURS], range=colours)
    return alt.Color("origin:N", title=None, scale=scale)


def data(rows: Sequence[Row]) -> alt.Data:
    """Rows as a chart takes them."""
    return alt.Data(values=list(rows))


def round_axis(last: int, title: str | None = "round") -> alt.X:
    """Rounds from the first to the last, the same in every figure of a run."""
    axis = alt.Axis(grid=False, format=",d", tickMinStep=1, tickCount=6)
    return alt.X("round:Q", title=title, scale=alt.Scale(domain=[0, last], nice=False), axis=axis)


# A run


def accuracy(run: RunRecords) -> Drawing:
    """The best model's accuracy, what honest clients deploy, and a dot for every model of the list."""
    lines, _ = every(run.tested, MOST_POINTS)
    rows = [row for line in lines for row in _tested_list(line)]
    top = accuracy_top(row["value"] for row in rows)
    x = round_axis(run.rounds_done)
    y = alt.Y("value:Q", title="test accuracy", scale=alt.Scale(domain=[0, top], nice=False))
    dash = alt.Scale(domain=[BEST, DEPLOYED], range=[[1, 0], [5, 3]])
    curves = alt.Chart(data(rows)).mark_line(strokeWidth=2)
    models = alt.Chart(data([row for line in lines for row in _tested_models(line, run.lineage)]))
    dots = models.mark_circle(size=12 if len(lines) > 60 else 36, opacity=0.7 if run.experiment.keeps_list else 0)
    tooltip = [
        alt.Tooltip("round:Q", format=","),
        "model:N",
        alt.Tooltip("value:Q", title="test accuracy", format=".3f"),
        alt.Tooltip("origin:N", title="it is"),
    ]
    colour = {"color": origin_colour()} if run.experiment.keeps_list else {}
    kind = alt.StrokeDash("what:N", title=None, scale=dash)
    return dots.encode(x=x, y=y, tooltip=tooltip, **colour) + curves.encode(x=x, y=y, strokeDash=kind)


def accuracy_top(values: Iterable[float]) -> float:
    """The end of an axis of accuracy: the next full tenth above all values."""
    return min(1.0, ceil(10.2 * max(values, default=1.0)) / 10) or 0.1


def _tested_list(line: Row) -> list[Row]:
    number = line["round"] + 1
    return [
        {"round": number, "value": max(line["accuracy"].values()), "what": BEST},
        {"round": number, "value": line["deployed_accuracy"], "what": DEPLOYED},
    ]


def _tested_models(line: Row, lineage: Lineage) -> list[Row]:
    return [
        {"round": line["round"] + 1, "model": model, "value": value, "origin": lineage.lives[int(model)].origin}
        for model, value in line["accuracy"].items()
    ]


def loss(run: RunRecords) -> Drawing:
    """The lowest mean validation loss in the list."""
    kept, _ = every(lowest_losses(run.lines), MOST_POINTS)
    rows = [{"round": round_number, "value": value} for round_number, value in kept]
    base = alt.Chart(data(rows)).encode(
        x=round_axis(run.rounds_done), y=alt.Y("value:Q", title="validation loss", scale=alt.Scale(zero=False))
    )
    tooltip = [
        alt.Tooltip("round:Q", format=","),
        alt.Tooltip("value:Q", title="validation loss", format=".3f"),
    ]
    return base.mark_line(strokeWidth=2, color=BLUE) + base.mark_circle(size=120, opacity=0).encode(tooltip=tooltip)


def votes(run: RunRecords) -> Drawing:
    """A bar a round, cut into the candidates by their votes; the models of honest origin at the bottom."""
    lines, step = every(run.lines, MOST_POINTS)
    rows = [row for line in lines for row in _vote_rows(line, run.lineage, step)]
    return (
        alt.Chart(data(rows))
        .mark_rect()
        .encode(
            x=round_axis(run.rounds_done),
            x2="until:Q",
            y=alt.Y("from:Q", title="votes", scale=alt.Scale(nice=False), axis=alt.Axis(tickMinStep=1)),
            y2="to:Q",
            color=origin_colour(),
            opacity=alt.condition(alt.datum.first, alt.value(1), alt.value(0.65)),
            tooltip=[
                alt.Tooltip("number:Q", title="round", format=","),
                "model:N",
                "votes:Q",
                alt.Tooltip("origin:N", title="it is"),
                "fate:N",
            ],
        )
    )


def _vote_rows(line: Row, lineage: Lineage, width: int) -> list[Row]:
    """The candidates of a round on top of each other, of one origin the most voted first."""
    order = {origin: place for place, origin in enumerate(ORIGIN_COLOURS)}
    cast = [(lineage.lives[int(model)], count) for model, count in line["votes"].items() if count]
    number = line["round"] + 1
    rows: list[Row] = []
    for life, count in sorted(cast, key=lambda one: (order[one[0].origin], -one[1])):
        below = rows[-1]["to"] if rows else 0
        row = {
            "round": max(0, number - width),
            "until": number,
            "number": number,
            "from": below,
            "to": below + count,
        }
        row |= {"model": life.model, "votes": count, "origin": life.origin}
        row["fate"] = "voted out" if life.gone == number else "stays"
        row["first"] = not rows or rows[-1]["origin"] is not life.origin
        rows.append(row)
    return rows


def lineage(tree: Lineage) -> Drawing:
    """Every model at the height of its loss: a line for its life, a step from its parent, a dot if out at once.

    The best model's ancestry is bold: the good line that lives on.
    """
    drawn = chosen(tree)
    bold = {life.model for life in tree.line}
    steps = [_step_row(life, tree, drawn) for life in drawn.lives if life.parents]
    x, y, colour = round_axis(tree.rounds), _loss_axis(drawn), origin_colour()
    tooltip = [
        alt.Tooltip("model:N"),
        alt.Tooltip("parents:N", title="made of"),
        alt.Tooltip("who:N", title="by"),
        alt.Tooltip("origin:N", title="it is"),
        alt.Tooltip("life:N", title="life"),
        alt.Tooltip("told:N", title="loss"),
    ]

    def layer(rows: Sequence[Row]) -> alt.Chart:
        return alt.Chart(data(rows)).encode(x=x, y=y, color=colour)

    def across(rows: Sequence[Row], **style: Any) -> alt.Chart:
        return layer(rows).mark_rule(clip=True, **style).encode(x2="until:Q", tooltip=tooltip)

    def upright(rows: Sequence[Row], **style: Any) -> alt.Chart:
        return layer(rows).mark_rule(**style).encode(y2="to:Q")

    layers: list[alt.Chart] = []
    if drawn.bend:
        mark = alt.Chart(data([{"loss": drawn.bend}])).mark_rule(strokeDash=[2, 3], opacity=0.5)
        layers.append(mark.encode(y=y))
    dots = layer([_life_row(life, tree, drawn) for life in drawn.rejected])
    layers += [
        upright([row for row in steps if row["model"] not in bold], strokeWidth=0.8, opacity=0.3),
        dots.mark_circle(size=16, opacity=0.6).encode(tooltip=tooltip),
        across([_life_row(life, tree, drawn) for life in drawn.lives], strokeWidth=2, opacity=0.8),
        upright([row for row in steps if row["model"] in bold], strokeWidth=3.5),
        across(_bold_rows(tree, drawn), strokeWidth=3.5, strokeCap="square"),
    ]
    return alt.layer(*layers)


def _loss_axis(drawn: Drawn) -> alt.Y:
    """Losses on a logarithmic scale, compressed above its bend."""
    pixels = [LINEAGE_HEIGHT, *([BEND_HEIGHT] if drawn.bend else []), 0]
    scale = alt.Scale(type="log", domain=list(drawn.span), range=pixels, nice=False)
    values = ticks(drawn.span)
    return alt.Y(
        "loss:Q",
        title="validation loss",
        scale=scale,
        axis=alt.Axis(values=values, tickCount=len(values), format="~g", labelOverlap=False),
    )


def ticks(span: Sequence[float]) -> list[float]:
    """Round numbers for a logarithmic axis: 1, 2, 3 and 5 with their tens, and tens alone above the bend."""
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


def _life_row(life: Life, tree: Lineage, drawn: Drawn) -> Row:
    until = tree.rounds if life.gone is None else life.gone
    end = (
        "in the last list"
        if life.gone is None
        else "voted out at once"
        if life.rejected
        else f"out in {life.gone:,}"
    )
    return {
        "round": life.born,
        "until": until,
        "loss": drawn.height(life),
        "told": "not finite" if life.loss is None else f"{life.loss:.3f}",
        "model": life.model,
        "parents": ", ".join(map(str, life.parents)) or "the initial model",
        "who": _who(life.clients),
        "origin": life.origin,
        "life": f"born in {life.born:,}, {end}" if life.born else f"there from the start, {end}",
    }


def _who(clients: Sequence[int]) -> str:
    if not clients:
        return "the server"
    return f"{len(clients)} clients" if len(clients) > 1 else f"client {clients[0]}"


def _step_row(life: Life, tree: Lineage, drawn: Drawn) -> Row:
    """From the height of the best parent to the model's own, in the round of its birth."""
    parent = min(drawn.height(tree.lives[parent]) for parent in life.parents)
    return {
        "round": life.born,
        "loss": parent,
        "to": drawn.height(life),
        "origin": life.origin,
        "model": life.model,
    }


def _bold_rows(tree: Lineage, drawn: Drawn) -> list[Row]:
    """Each ancestor of the best model from its own birth to that of the next."""
    ends = [life.born for life in tree.line[1:]] + [tree.rounds]
    rows = [_life_row(life, tree, drawn) for life in tree.line]
    return [row | {"until": end} for row, end in zip(rows, ends, strict=True)]


def rejected(tree: Lineage, bins: int = 50) -> Drawing:
    """How many models were voted out in the round they were born, over rounds."""
    rows = _rejected_rows(tree, width=max(1, -(-tree.rounds // bins)))
    top = max(row["to"] for row in rows)
    axis = alt.Axis(values=sorted({0, ceil(top / 2), top}), format="d")
    return (
        alt.Chart(data(rows))
        .mark_rect()
        .encode(
            x=round_axis(tree.rounds),
            x2="until:Q",
            y=alt.Y("from:Q", title="out at birth", axis=axis, scale=alt.Scale(domain=[0, top], nice=False)),
            y2="to:Q",
            color=origin_colour(),
            tooltip=[
                "rounds:N",
                alt.Tooltip("count:Q", title="voted out at birth"),
                alt.Tooltip("origin:N", title="they are"),
            ],
        )
    )


def _rejected_rows(tree: Lineage, width: int) -> list[Row]:
    """So many rounds a bar, the origins on top of each other."""
    counts = Counter(((life.born - 1) // width * width, life.origin) for life in tree.born if life.rejected)
    rows: list[Row] = []
    for start in sorted({start for start, _ in counts}):
        end, below = min(start + width, tree.rounds), 0
        for origin in ORIGIN_COLOURS:
            count = counts[start, origin]
            row = {"round": start, "until": end, "from": below, "to": below + count, "count": count}
            rows += [row | {"origin": origin, "rounds": f"{start + 1:,} to {end:,}"}] if count else []
            below += count
    return rows


def margin(run: RunRecords) -> Drawing:
    """How many more colluding ballots would have removed the honest favourite: the smallest of each few rounds."""
    told = [(line["round"] + 1, line["margin"]) for line in run.lines if line.get("margin") is not None]
    width = max(1, -(-len(told) // MOST_POINTS))
    closest = [min(told[start : start + width], key=itemgetter(1)) for start in range(0, len(told), width)]
    rows = [{"round": round_number, "value": ballots} for round_number, ballots in closest]
    base = alt.Chart(data(rows)).encode(
        x=round_axis(run.rounds_done), y=alt.Y("value:Q", title="margin in ballots", axis=alt.Axis(tickMinStep=1))
    )
    tooltip = [alt.Tooltip("round:Q", format=","), alt.Tooltip("value:Q", title="margin")]
    return base.mark_line(strokeWidth=2, color=GREEN, interpolate="step") + base.mark_circle(
        size=120, opacity=0
    ).encode(tooltip=tooltip)


def phases(run: RunRecords) -> Drawing:
    """A bar a phase."""
    found = run.seconds_by_phase()
    rows = [
        {"phase": phase, "seconds": seconds, "text": f"{seconds:.2f} s, {percent(seconds / run.seconds)}"}
        for phase, seconds in found.items()
    ]
    room = alt.Scale(domain=[0, 1.35 * max(found.values())], nice=False)
    base = alt.Chart(data(rows)).encode(
        y=alt.Y("phase:N", title=None, sort=list(found), axis=alt.Axis(grid=False)),
        x=alt.X("seconds:Q", title="seconds", scale=room, axis=alt.Axis(grid=False, tickCount=6)),
        tooltip=["phase:N", alt.Tooltip("seconds:Q", format=".2f")],
    )
    bars = base.mark_bar(color=BLUE, height={"band": 0.7})
    return bars + base.mark_text(align="left", dx=5).encode(text="text:N")


# A sweep

MEAN_TOOLTIP = [
    alt.Tooltip("mean:Q", format=".3f"),
    alt.Tooltip("std:Q", title="deviation", format=".3f"),
    alt.Tooltip("runs:Q"),
]


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


def curves(scene: Scene, attack: str, methods: Sequence[str], highest: float) -> Drawing:
    """Accuracy over rounds under one attack: a line a method, with a band of one deviation over seeds.

    A dot marks where a curve ends before the others; one that was tested once is nothing but its dot.
    """
    keys = method_styles(methods).values()
    colours = alt.Scale(domain=list(methods), range=[key.colour for key in keys])
    dashes = alt.Scale(domain=list(methods), range=[DASHES[int(key.shape[-1])] for key in keys])
    parameter, test = shown(methods)
    base = (
        alt.Chart(data(_curve_rows(scene, attack, methods)))
        .transform_filter(test)
        .encode(
            x=round_axis(scene.rounds),
            color=alt.Color("method:N", title=None, scale=colours),
        )
    )

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title="test accuracy", scale=alt.Scale(domain=[0, highest], nice=False))

    band = base.mark_area(opacity=0.2).encode(y=y("low"), y2="high:Q")
    dash = alt.StrokeDash("method:N", title=None, scale=dashes)
    line = base.mark_line(strokeWidth=2).encode(y=y("mean"), strokeDash=dash)
    tooltip = ["method:N", alt.Tooltip("round:Q", format=","), *MEAN_TOOLTIP]
    points = base.mark_circle(size=150, opacity=0).encode(y=y("mean"), tooltip=tooltip)
    early = base.transform_filter("datum.ends").mark_circle(size=45, opacity=1).encode(y=y("mean"))
    return (band + line + early + points).add_params(parameter)


def _curve_rows(scene: Scene, attack: str, methods: Sequence[str]) -> list[Row]:
    rows: list[Row] = []
    for method in methods:
        runs = scene.of(method, attack)
        curve = mean_curve(runs) if runs else []
        for point in curve:
            low, high = max(0.0, point.mean - point.deviation), min(1.0, point.mean + point.deviation)
            row = {"round": point.round, "method": method, "mean": round(point.mean, 4), "runs": point.runs}
            row |= {"ends": point is curve[-1] and point.round < scene.rounds}
            rows.append(row | {"low": round(low, 4), "high": round(high, 4), "std": round(point.deviation, 4)})
    return rows


def heat_map(scene: Scene, methods: Sequence[str]) -> Drawing:
    """The mean accuracy of each method under each attack, as a colour and a number."""
    attacks = list(scene.grid.columns)
    cells = [(place, cell) for place, cell in scene.grid.cells.items() if place[0] in methods]
    rows = [
        {"method": method, "attack": attack, "mean": round(cell.mean, 4), "std": round(cell.deviation, 4)}
        | {"runs": len(cell.values)}
        for (method, attack), cell in cells
    ]
    slant = alt.Axis(labelAngle=0 if len(attacks) <= 4 else -35, labelOverlap=False, grid=False)
    parameter, test = shown(methods)
    base = (
        alt.Chart(data(rows))
        .transform_filter(test)
        .encode(
            x=alt.X("attack:N", title=None, sort=attacks, axis=slant),
            y=alt.Y("method:N", title=None, sort=list(methods), axis=alt.Axis(grid=False)),
            tooltip=["method:N", "attack:N", *MEAN_TOOLTIP],
        )
    )
    colour = alt.Color("mean:Q", scale=alt.Scale(scheme="viridis", domain=[0, 1]), legend=None)
    ink = alt.condition(alt.datum.mean > 0.5, alt.value("black"), alt.value("white"))
    numbers = base.mark_text(fontSize=12).encode(text=alt.Text("mean:Q", format=".2f"), color=ink)
    return (base.mark_rect().encode(color=colour) + numbers).add_params(parameter)
