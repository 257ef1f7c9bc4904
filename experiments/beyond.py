"""The tables of docs/beyond.md, made from the kept results alone.

    python -m experiments.beyond        rewrites what stands between the marks `<!-- name -->` and `<!-- end -->`

`lidfl reproduce beyond-ranked` and the others run what is missing in `results/`.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from lidfl.studies.store import Kept, read_kept
from lidfl.studies.tables import Cell, markdown

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "beyond.md"
RESULTS = ROOT / "results"
ATTACKS = ("empire", "gauss", "label_flip", "lie", "omniscient", "sign_flip")
VOTES = ("worst", "random", "coordinated")
SHORT_BY = 0.01
"""What falls further below the oracle than this is shown in bold."""
FLOAT = 4
"""Bytes of a parameter on the wire."""
LR_PARAMETERS = 784 * 62 + 62


@cache
def runs(name: str) -> list[Kept]:
    """All kept runs of an experiment."""
    path = RESULTS / f"{name}.json"
    return list(read_kept(path).values()) if path.exists() else []


def accuracy(run: Kept) -> float:
    """The paper's test accuracy."""
    return float(run.summary["test_accuracy"])


def such(found: Iterable[Kept], **settings: Any) -> list[Kept]:
    """Those runs that have these settings."""
    return [run for run in found if all(getattr(run.experiment, key) == value for key, value in settings.items())]


def text(found: Iterable[Kept]) -> str:
    """Mean ± deviation over seeds, the mean alone for one seed, a dash for none."""
    return Cell(tuple(map(accuracy, found))).text()


def seeds(found: Iterable[Kept]) -> str:
    """Which seeds and commits the runs have, for the line below a table."""
    found = list(found)
    numbers = ", ".join(map(str, sorted({run.experiment.seed for run in found})))
    commits = ", ".join(sorted({str(run.summary.get("commit")) for run in found}))
    return f"\nSeeds {numbers}; commit {commits}.\n"


def ranked() -> str:
    """lidfl-ranked beside the oracle, for every fraction, way of voting and attack."""
    found = runs("beyond-ranked")
    lines = []
    for fraction in (0.4, 0.6, 0.8):
        at = such(found, byzantine_fraction=fraction)
        ceiling = such(at, method="oracle")
        for how in VOTES:
            cells = [such(at, method="lidfl-ranked", vote_attack=how, attack=attack) for attack in ATTACKS]
            lines.append([str(fraction), text(ceiling), how, *(beside(cell, ceiling) for cell in cells)])
    return markdown(["Byzantine", "oracle", "votes", *ATTACKS], lines) + seeds(found)


def stride() -> str:
    """What candidates that go twice as far gain: the distance from the oracle with and without them."""
    kinds = (such(runs("beyond-stride"), seed=2024), such(runs("beyond-ranked"), seed=2024, method="lidfl-ranked"))
    lines = []
    for fraction in (0.4, 0.6, 0.8):
        ceiling = such(runs("beyond-ranked"), byzantine_fraction=fraction, method="oracle")
        for how in VOTES:
            cells = (such(found, byzantine_fraction=fraction, vote_attack=how) for found in kinds)
            lines.append([str(fraction), how, *(spread(cell, ceiling) for cell in cells)])
    return markdown(["Byzantine", "votes", "without", "with"], lines) + seeds(
        [run for found in kinds for run in found]
    )


def spread(found: Sequence[Kept], ceiling: Sequence[Kept]) -> str:
    """The mean distance from the oracle over the attacks, and the largest."""
    gaps = [difference(such(found, attack=attack), ceiling) for attack in ATTACKS]
    if None in gaps:
        return "–"
    known = [gap for gap in gaps if gap is not None]
    return f"{fmean(known):+.3f}, at worst {min(known):+.3f}"


def beside(found: Sequence[Kept], ceiling: Sequence[Kept]) -> str:
    """An accuracy and how far it lies from the oracle's."""
    gap = difference(found, ceiling)
    if gap is None:
        return "–"
    return f"{text(found)} ({f'**{gap:+.3f}**' if gap < -SHORT_BY else f'{gap:+.3f}'})"


def difference(found: Sequence[Kept], ceiling: Sequence[Kept]) -> float | None:
    """How far accuracies lie from the oracle's with the same seed, in the mean over seeds that both have."""
    best = {run.experiment.seed: accuracy(run) for run in ceiling}
    gaps = [accuracy(run) - best[run.experiment.seed] for run in found if run.experiment.seed in best]
    return fmean(gaps) if gaps else None


def votes() -> str:
    """The paper's protocol under colluding voters, by plurality and by ranked ballots."""
    found = such(runs("beyond-votes"), rounds=1500)
    rows = [("plurality", 1, how) for how in ("worst", "coordinated", "coordinated:aim=best")]
    rows += [("ranked", 3, how) for how in ("worst", "coordinated")]
    lines = []
    for election, candidates, how in rows:
        at = such(found, election=election, candidates=candidates, vote_attack=how)
        lines.append([election, str(candidates), how, *(text(such(at, attack=a)) for a in ("lie", "sign_flip"))])
    return markdown(["election", "candidates", "votes", "lie", "sign_flip"], lines) + seeds(found)


def cost() -> str:
    """What it takes to reach 0.55: rounds, gradient steps, bytes and seconds."""
    found = runs("beyond-cost")
    lines = []
    for label in ("lidfl", "lidfl+rknn", "lidfl-ranked", "oracle"):
        reached = [run for run in found if run.experiment.method_label == label]
        stops = [run.milestones["0.55"] for run in reached if "0.55" in run.milestones]
        if not stops:
            lines.append([label, "not reached" if reached else "–", "", "", ""])
            continue
        rounds, seconds = (fmean(values) for values in zip(*stops, strict=True))
        trains, models = per_round(reached[0])
        steps = rounds * trains * reached[0].experiment.local_steps
        megabytes = rounds * models * LR_PARAMETERS * FLOAT / 1e6
        lines.append([label, f"{rounds:.0f}", f"{steps:,.0f}", f"{megabytes:,.0f}", f"{seconds:.1f}"])
    header = ["method", "rounds", "gradient steps, all clients", "MB sent, all clients", "seconds here"]
    return markdown(header, lines) + seeds(found)


def per_round(run: Kept) -> tuple[int, float]:
    """How many clients train in a round, and how many models or updates travel, if none travels twice.

    Voters get the candidates, and so have the whole list; workers send updates; jurors get all others' updates.
    """
    experiment = run.experiment
    m, k, c = experiment.num_clients, experiment.num_honest, experiment.candidates
    if experiment.method == "oracle":
        return k, 2 * k
    trains = m if experiment.compares_updates else 1
    candidates = run.summary["candidates_per_round"]
    jurors = c * (m - 1) if "jurors" in experiment.proposal else 0
    return trains, trains + jurors + m * candidates


def non_iid() -> str:
    """Clients whose data differ."""
    found = runs("beyond-non-iid")
    lines = []
    for partition in ("dirichlet:concentration=0.1", "by_writer"):
        at = such(found, partition=partition)
        for label in ("oracle", "lidfl", "lidfl-ranked"):
            method = [run for run in at if run.experiment.method_label == label]
            cells = [such(method, attack=attack) for attack in ("lie", "sign_flip")]
            if label == "oracle":  # no attack reaches it
                cells = [method, method]
            deployed = [
                f"{fmean(r.summary['deployed_accuracy'] for r in cell):.3f}" if cell else "–" for cell in cells
            ]
            lines.append([partition, label, *(f"{text(c)}; {d}" for c, d in zip(cells, deployed, strict=True))])
    return markdown(
        ["partition", "method", "lie: best model; deployed", "sign_flip: best model; deployed"], lines
    ) + seeds(found)


def cnn() -> str:
    """The CNN at equal rounds."""
    found = runs("beyond-cnn")
    lines = []
    for label in ("lidfl+rknn", "lidfl-ranked", "oracle"):
        method = [run for run in found if run.experiment.method_label == label]
        cells = [method if label == "oracle" else such(method, attack=attack) for attack in ("lie", "sign_flip")]
        lines.append([label, *map(text, cells)])
    rounds = ", ".join(sorted({str(run.experiment.rounds) for run in found})) or "–"
    return markdown(["method", "lie", "sign_flip"], lines) + f"\n{rounds} rounds." + seeds(found)


def million() -> str:
    """A round's time and memory from a thousand clients to a million."""
    path = ROOT / "docs" / "million.json"
    found = json.loads(path.read_text()) if path.exists() else []
    lines = [
        [
            f"{p['clients']:,}",
            f"{p['voters']:,}",
            f"{p['ms']:.0f} ({p['ms'] / found[0]['ms']:.2f}×)",
            f"{p['mib']:.0f} ({p['mib'] / found[0]['mib']:.2f}×)",
        ]
        for p in found
    ]
    return markdown(["clients", "voters", "ms a round", "MiB at most"], lines)


TABLES: dict[str, Callable[[], str]] = {
    "ranked": ranked,
    "stride": stride,
    "votes": votes,
    "cost": cost,
    "non-iid": non_iid,
    "cnn": cnn,
    "million": million,
}


def filled(page: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """A page with every table between its marks made anew."""
    for name, make in tables.items():
        mark = f"<!-- {name} -->\n"
        page, changed = re.subn(rf"(?s){re.escape(mark)}.*?<!-- end -->", f"{mark}\n{make()}\n<!-- end -->", page)
        assert changed == 1, f"the page has no place for the table '{name}'"
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), TABLES), encoding="utf-8")
