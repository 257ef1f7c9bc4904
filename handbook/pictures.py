"""The pictures of the README and of the site: from kept results, and the lineage of a run that takes a second.

make pictures       writes docs/headline.svg and docs/lineage.svg
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import altair as alt

import lidfl
from lidfl import Experiment
from lidfl.report import write_report
from lidfl.report.figures.base import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, Row, chart_of
from lidfl.studies.store import Kept, longest, read_kept
from lidfl.studies.tables import Cell

ROOT = Path(__file__).parents[1]
DOCS, RESULTS = ROOT / "docs", ROOT / "results"
FRACTIONS = (0.4, 0.6, 0.8)
METHODS = {
    "oracle": ("honest clients alone", GREEN),
    "lidfl-ranked": ("lidfl-ranked", VERMILLION),
    "lidfl": ("LiD-FL", BLUE),
    "norm": ("norm clipping", ORANGE),
    "cwm": ("median", PURPLE),
    "gm": ("geometric median", SKY),
    "fedavg": ("FedAvg", GREY),
}
"""Each method with its name in the picture and its colour, from top to bottom."""
GAP = 0.045
"""The least distance between two names, on the axis of accuracy."""


def kept() -> list[Kept]:
    """The paper's LR on FEMNIST: LiD-FL and its baselines, and beside them lidfl-ranked and the oracle."""
    files = [*(RESULTS / f"femnist-lr-{fraction}.json" for fraction in FRACTIONS), RESULTS / "beyond-deployed.json"]
    return [run for file in files for run in longest(read_kept(file).values())]


def worst(runs: Iterable[Kept]) -> float:
    """The lowest deployed accuracy, over attacks and ways of voting, of the means over seeds."""
    cells: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        place = (run.experiment.attack, run.experiment.vote_attack)
        cells.setdefault(place, []).append(run.summary["deployed_accuracy"])
    return min(Cell(tuple(values)).mean for values in cells.values())


def headline_rows(runs: Sequence[Kept]) -> Iterator[Row]:
    """What honest clients deploy, by method and Byzantine fraction."""
    for label, (name, _) in METHODS.items():
        for fraction in FRACTIONS:
            found = [
                run
                for run in runs
                if (run.experiment.method_label, run.experiment.byzantine_fraction) == (label, fraction)
            ]
            yield {"method": name, "fraction": fraction, "deployed": round(worst(found), 4)}


def labels(rows: Iterable[Row]) -> Iterator[Row]:
    """The methods' names beside the ends of their lines, moved apart: upwards from below, downwards from above."""
    ends = sorted((row for row in rows if row["fraction"] == FRACTIONS[-1]), key=lambda row: row["deployed"])
    below, height = [row for row in ends if row["deployed"] < 0.3], -GAP / 2
    for row in below:
        height = max(row["deployed"], height + GAP)
        yield {**row, "at": height}
    height = 1.0
    for row in reversed(ends[len(below) :]):
        height = min(row["deployed"] + GAP / 2, height - GAP)
        yield {**row, "at": height}


def headline() -> alt.TopLevelMixin:
    """Deployed accuracy against the Byzantine fraction, a line a method, named at its end."""
    rows = list(headline_rows(kept()))
    names, colours = zip(*METHODS.values(), strict=True)
    share = alt.X("fraction:Q", title="Byzantine clients").scale(domain=[0.37, 0.99], nice=False)
    share = share.axis(format=".0%", values=FRACTIONS, grid=False)
    accuracy = alt.Y("deployed:Q", title="accuracy that honest clients deploy").scale(domain=[0, 0.7])
    colour = alt.Color("method:N", legend=None).scale(domain=names, range=colours)
    base = chart_of(rows, width=660, height=280).encode(share, accuracy, colour)
    half = chart_of([{"fraction": 0.5}]).mark_rule(strokeDash=[4, 4], color=GREY).encode(share)
    named = chart_of(labels(rows)).mark_text(align="left", dx=12, fontSize=13, fontWeight="bold")
    title = alt.Title(
        "What honest clients deploy, under the worst of six attacks",
        subtitle="FEMNIST, logistic regression, 35 clients; right of the dashed line attackers are the majority",
        anchor="start",
        fontSize=15,
    )
    return alt.layer(
        half,
        base.mark_line(strokeWidth=2.5),
        base.mark_point(filled=True, size=60, opacity=1),
        named.encode(share, alt.Y("at:Q"), colour, alt.Text("method:N")),
    ).properties(title=title)


def save_lineage(place: Path) -> None:
    """The lineage of a short run on digits, as `lidfl report` draws it."""
    with TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        lidfl.run(Experiment(rounds=40, byzantine_fraction=0.6, attack="sign_flip", out=str(out)))
        write_report([out], figures=Path(folder), formats=["svg"])
        place.write_text((Path(folder) / "lineage.svg").read_text())


if __name__ == "__main__":
    headline().configure(background="white", padding=12).configure_axis(titleFontSize=12).save(
        DOCS / "headline.svg"
    )
    save_lineage(DOCS / "lineage.svg")
