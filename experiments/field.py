"""The leader board of docs/field.md, made from the kept results alone.

    python -m experiments.field         rewrites what stands between the marks `<!-- name -->` and `<!-- end -->`,
                                        and draws docs/field-breakdown.svg

`lidfl reproduce field`, `field-rivals`, `field-seeds` and `field-partitions` run what is missing in `results/`.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from statistics import fmean

import altair as alt

from experiments.kept import ROOT, beside, deployed, filled, gap, runs, seeds, such
from lidfl.report.figures.base import GREY, Row, chart_of
from lidfl.report.figures.breakdown import labels
from lidfl.report.figures.methods import dash_of, method_styles
from lidfl.runs.costs import costs_of
from lidfl.studies.store import Kept
from lidfl.studies.tables import markdown

PAGE = ROOT / "docs" / "field.md"
FRACTIONS = (0.0, 0.1, 0.2, 0.4, 0.6, 0.8)
MAJORITY = 0.6
PARTITIONS = ("by_writer", "dirichlet:concentration=0.5", "dirichlet:concentration=0.1")
IDEAL = "oracle"
"""Which no federation can run."""
DRAWN = {
    "oracle": "honest clients alone",
    "lidfl-ranked": "lidfl-ranked",
    "lidfl": "LiD-FL",
    "fltrust": "FLTrust",
    "fedgreed": "FedGreed",
    "zeno": "Zeno",
    "local": "training alone",
    "basil": "Basil",
    "ditto": "Ditto",
    "ifca": "IFCA",
    "nnm|trimmed_mean": "NNM + trimmed mean",
    "dnc": "DnC",
    "cwm": "median",
    "fedavg": "FedAvg",
}
"""What the picture shows, and what it calls it."""
FILES = ("field", "field-rivals")


def board() -> list[Kept]:
    """All runs with a clean set as FLTrust has it; those of other sets have a table of their own."""
    found = {run.experiment: run for name in FILES for run in runs(name)}
    return such(found.values(), server_samples=100, server_bias=0.0)


def methods_of(found: Iterable[Kept]) -> list[str]:
    """Every method once, in the order of the experiment."""
    return list(dict.fromkeys(run.experiment.method for run in found))


def named(method: str) -> str:
    """A method as a cell of a table shows it."""
    return f"`{method}`".replace("|", "\\|")


def attacks_of(found: Iterable[Kept]) -> list[str]:
    """Every attack once, by name; `none` is not one."""
    return sorted({run.experiment.attack for run in found} - {"none"})


def worst(found: Sequence[Kept]) -> tuple[float, str] | None:
    """What the worst attack leaves in the mean over seeds, and its name; None if nothing was run."""
    attacks = list(dict.fromkeys(run.experiment.attack for run in found))
    return min(((fmean(map(deployed, such(found, attack=name))), name) for name in attacks), default=None)


def worst_cases() -> str:
    """Every method under its worst attack, by Byzantine fraction, the best at 60 % first, and what it costs."""
    found = board()

    def at_majority(method: str) -> float:
        case = worst(such(found, method=method, byzantine_fraction=MAJORITY))
        return case[0] if case else -1.0

    lines = []
    for method in sorted(methods_of(found), key=lambda name: (name != IDEAL, -at_majority(name))):
        mine = such(found, method=method)
        cases = [worst(such(mine, byzantine_fraction=fraction)) for fraction in FRACTIONS]
        lines.append([named(method), *map(_case, cases), *_costs(such(mine, byzantine_fraction=MAJORITY))])
    head = ["method", *(f"{fraction:.0%}" for fraction in FRACTIONS), "steps", "MB", "seconds here"]
    return markdown(head, lines) + seeds(found)


def _case(case: tuple[float, str] | None) -> str:
    """An accuracy, and under which attack."""
    if case is None:
        return "–"
    value, attack = case
    return f"{value:.3f}" if attack == "none" else f"{value:.3f} {attack}"


def _costs(found: Sequence[Kept]) -> list[str]:
    """The mean gradient steps and megabytes of all clients, and seconds, of a run."""
    costs = [costs_of(run.experiment, run.summary, parameters=run.summary.get("parameters")) for run in found]
    known = [cost for cost in costs if cost is not None]
    if not known:
        return ["–"] * 3
    megabytes = fmean(cost.bytes_sent or 0 for cost in known) / 1e6
    steps, seconds = (fmean(values) for values in ([c.gradient_steps for c in known], map(_seconds, found)))
    return [f"{steps:,.0f}", f"{megabytes:,.0f}", f"{seconds:.0f}"]


def _seconds(run: Kept) -> float:
    return float(run.summary["seconds"])


def by_attack() -> str:
    """Every method and attack where attackers are few, and where they are the majority."""
    found = [run for run in board() if run.experiment.attack != "none"]
    attacks, tables = attacks_of(found), []
    for fraction in (0.1, MAJORITY):
        at = such(found, byzantine_fraction=fraction)
        lines = [
            [named(method), *(_mean(such(at, method=method, attack=attack)) for attack in attacks)]
            for method in methods_of(at)
        ]
        tables.append(f"{fraction:.0%} Byzantine:\n\n{markdown(['method', *attacks], lines)}")
    return "\n".join(tables)


def _mean(found: Sequence[Kept]) -> str:
    return f"{fmean(map(deployed, found)):.3f}" if found else "–"


def clean_sets() -> str:
    """What a clean set buys: as FLTrust has it, as small as one client's, and biased."""
    found = [run for name in FILES for run in runs(name)]
    kinds = [(100, 0.0), (0, 0.0), (100, 0.5), (0, 0.5)]
    told = ["100 images", "one client's validation set", "100 images, biased", "one client's, biased"]
    lines = []
    for method, fraction in product(("fltrust", "fedgreed", "zeno"), (0.6, 0.8)):
        cells = []
        for samples, bias in kinds:
            at = such(found, method=method, byzantine_fraction=fraction, server_samples=samples, server_bias=bias)
            cells.append(_case(worst([run for run in at if run.experiment.attack in ("sign_flip", "min_max")])))
        lines.append([named(method), f"{fraction:.0%}", *cells])
    return markdown(["method", "Byzantine", *told], lines)


def with_seeds() -> str:
    """The rows that matter beside the oracle: the mean over seeds, and the difference with its 95 % interval."""
    found = runs("field-seeds")
    attacks = attacks_of(found)
    tables = []
    for fraction in sorted({run.experiment.byzantine_fraction for run in found}):
        at = such(found, byzantine_fraction=fraction)
        ceiling = such(at, method=IDEAL)
        lines = []
        for method in methods_of(at):
            mine = such(at, method=method)
            if method == "local":
                lines.append([named(method), *[_interval(mine, ceiling)] * len(attacks)])
            elif method != IDEAL:
                cells = (_interval(such(mine, attack=attack), ceiling) for attack in attacks)
                lines.append([named(method), *cells])
        title = f"{fraction:.0%} Byzantine; the oracle's clients deploy {_mean(ceiling)}."
        tables.append(f"{title}\n\n{markdown(['method', *attacks], lines)}")
    return "\n".join(tables) + seeds(found)


def _interval(found: Sequence[Kept], ceiling: Sequence[Kept]) -> str:
    far = gap(found, ceiling)
    return f"{_mean(found)}: {far.text()}" if far else "–"


def where_clients_differ() -> str:
    """Partitions by writer and by class: the worst of two attacks, beside training alone."""
    found = runs("field-partitions")
    lines = []
    for method in methods_of(found):
        cells = []
        for partition, fraction in product(PARTITIONS, (0.2, MAJORITY)):
            at = such(found, partition=partition, byzantine_fraction=fraction)
            mine, alone = such(at, method=method), such(at, method="local")
            case = worst(mine)
            if method in (IDEAL, "local") or case is None:
                cells.append(_mean(mine))
            else:
                cells.append(beside(such(mine, attack=case[1]), alone))
        lines.append([named(method), *cells])
    head = [f"{partition}, {fraction:.0%}" for partition, fraction in product(PARTITIONS, (0.2, MAJORITY))]
    return markdown(["method", *head], lines) + seeds(found)


def picture() -> alt.LayerChart:
    """Deployed accuracy against the Byzantine fraction, each method under its worst attack."""
    found, rows = board(), list[Row]()
    for method, name in DRAWN.items():
        for fraction in FRACTIONS:
            case = worst(such(found, method=method, byzantine_fraction=fraction))
            if case is not None:
                rows.append({"method": name, "fraction": fraction, "mean": round(case[0], 4), "attack": case[1]})
    styles, top = method_styles([*DRAWN.values()]), 0.7
    colours, dashes = [style.colour for style in styles.values()], [dash_of(style) for style in styles.values()]
    share = alt.X("fraction:Q", title="Byzantine clients").scale(domain=[0, 1.02], nice=False)
    share = share.axis(format=".0%", values=FRACTIONS, grid=False)
    height = alt.Y("mean:Q", title="accuracy that honest clients deploy, worst attack").scale(domain=[0, top])
    colour = alt.Color("method:N", legend=None).scale(domain=[*styles], range=colours)
    dash = alt.StrokeDash("method:N", legend=None).scale(domain=[*styles], range=dashes)
    base = chart_of(rows, width=640, height=460).encode(share, height, colour)
    half = chart_of([{"fraction": 0.5}]).mark_rule(strokeDash=[4, 4], color=GREY).encode(share)
    ends = chart_of(labels(rows, top)).mark_text(align="left", dx=8, fontSize=12)
    told = ends.encode(share, alt.Y("at:Q").scale(domain=[0, top]), colour, alt.Text("method:N"))
    return alt.layer(half, base.mark_line(strokeWidth=2).encode(dash), base.mark_point(filled=True, size=40), told)


TABLES: dict[str, Callable[[], str]] = {
    "worst-cases": worst_cases,
    "by-attack": by_attack,
    "clean-sets": clean_sets,
    "with-seeds": with_seeds,
    "where-clients-differ": where_clients_differ,
}


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), TABLES), encoding="utf-8")
    picture().configure(background="white", padding=8).save(PAGE.parent / "field-breakdown.svg")
