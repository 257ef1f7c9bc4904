"""The figures of docs/beyond.md, made from the kept results alone.

python -m experiments.pictures      writes docs/beyond-*.svg
"""

from collections.abc import Sequence

import altair as alt

from experiments.beyond import ATTACKS, PAGE, VOTES, cells, per_round
from experiments.kept import gap, runs, such
from lidfl.report.figures.base import BLUE, GREEN, ORANGE, PURPLE, VERMILLION, Row, chart_of
from lidfl.report.scenes import mean_curve

DOCS = PAGE.parent
COST_COLOURS = {"lidfl": BLUE, "lidfl+rknn": ORANGE, "lidfl-ranked": VERMILLION, "oracle": GREEN}
VOTE_COLOURS = {
    "plurality, worst": BLUE,
    "plurality, coordinated": GREEN,
    "plurality, coordinated:aim=best": PURPLE,
    "ranked, worst": ORANGE,
    "ranked, coordinated": VERMILLION,
}


def ranked() -> alt.TopLevelMixin:
    """How far what clients deploy lies from the oracle's, in every cell of the table."""
    found = [*cells(runs("beyond-deployed"))]
    rows: dict[float, list[Row]] = {fraction: [] for fraction, *_ in found}
    for fraction, how, attack, mine, ceiling in found:
        far = gap(mine, ceiling)
        if far is not None:
            rows[fraction].append({"votes": how, "attack": attack, "gap": far.mean})
    return alt.vconcat(*(_heat_map(some, fraction) for fraction, some in rows.items()))


def _heat_map(rows: Sequence[Row], fraction: float) -> alt.LayerChart:
    """Blue above the oracle, vermillion below; full colour at a distance of 0.03."""
    scale = alt.Scale(domain=[-0.03, 0, 0.03], range=[VERMILLION, "white", BLUE], clamp=True, interpolate="rgb")
    base = chart_of(rows, title=f"{fraction:.0%} Byzantine", width=420, height=90).encode(
        alt.X("attack:N", title=None, axis=alt.Axis(labelAngle=0), scale=alt.Scale(domain=ATTACKS)),
        alt.Y("votes:N", title="votes", sort=VOTES, scale=alt.Scale(domain=VOTES)),
    )
    cells = base.mark_rect().encode(alt.Color("gap:Q", scale=scale, title="distance"))
    return cells + base.mark_text(color="black").encode(alt.Text("gap:Q", format="+.3f"))


def cost() -> alt.TopLevelMixin:
    """Accuracy over rounds, and over the gradient steps of all clients."""
    rows = []
    for label in COST_COLOURS:
        found = [run for run in runs("beyond-cost") if run.experiment.method_label == label]
        for point in mean_curve(found):
            steps = point.round * per_round(found[0])[0]
            rows.append({"method": label, "round": point.round, "steps": steps, "accuracy": point.cell.mean})
    panels = [("round", "round"), ("steps", "gradient steps, all clients")]
    return alt.hconcat(*(_lines(rows, "method", COST_COLOURS, *panel, log=True) for panel in panels))


def votes() -> alt.TopLevelMixin:
    """Accuracy over rounds under voters of every kind, for both elections."""
    found = such(runs("beyond-votes"), rounds=1500)
    panels = []
    for attack in ("lie", "sign_flip"):
        rows = []
        for label in VOTE_COLOURS:
            election, _, how = label.partition(", ")
            cell = such(found, election=election, vote_attack=how, attack=attack)
            rows += [{"votes": label, "round": p.round, "accuracy": p.cell.mean} for p in mean_curve(cell)]
        panels.append(_lines(rows, "votes", VOTE_COLOURS, "round", "round", title=attack, lowest=0.4))
    return alt.hconcat(*panels)


def _lines(
    rows: Sequence[Row],
    by: str,
    colours: dict[str, str],
    x: str,
    label: str,
    *,
    title: str = "",
    lowest: float = 0,
    log: bool = False,
) -> alt.Chart:
    return (
        chart_of(rows, title=title, width=330, height=240)
        .mark_line(strokeWidth=2)
        .encode(
            alt.X(
                f"{x}:Q",
                title=label,
                scale=alt.Scale(type="log" if log else "linear", nice=False),
                axis=alt.Axis(tickCount=4),
            ),
            alt.Y("accuracy:Q", title="test accuracy", scale=alt.Scale(domain=[lowest, 0.65], clamp=True)),
            alt.Color(f"{by}:N", title=by, scale=alt.Scale(domain=[*colours], range=[*colours.values()])),
        )
    )


if __name__ == "__main__":
    for name, chart in {"ranked": ranked(), "cost": cost(), "votes": votes()}.items():
        chart.configure(background="white").configure_legend(labelLimit=260).save(DOCS / f"beyond-{name}.svg")
