"""The tables of docs/beyond.md, made from the kept results alone.

    python -m experiments.beyond        rewrites what stands between the marks `<!-- name -->` and `<!-- end -->`

`lidfl reproduce beyond-deployed` and the others run what is missing in `results/`.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from statistics import fmean
from typing import Any

from experiments.kept import ROOT, SHORT_BY, accuracy, beside, deployed, filled, foot, gap, runs, seeds, such, text
from lidfl.runs.costs import costs_of
from lidfl.studies.store import Kept
from lidfl.studies.tables import markdown

PAGE = ROOT / "docs" / "beyond.md"
ATTACKS = ("empire", "gauss", "label_flip", "lie", "omniscient", "sign_flip")
VOTES = ("worst", "random", "coordinated")
LR_PARAMETERS = 784 * 62 + 62


def cells(found: Sequence[Kept]) -> Iterator[tuple[float, str, str, list[Kept], list[Kept]]]:
    """Fraction, way of voting, attack, the runs of lidfl-ranked there and the oracle's."""
    for fraction in (0.4, 0.6, 0.8):
        at = such(found, byzantine_fraction=fraction)
        for how in VOTES:
            for attack in ATTACKS:
                mine = such(at, method="lidfl-ranked", vote_attack=how, attack=attack)
                yield fraction, how, attack, mine, such(at, method="oracle")


def ranked() -> str:
    """What honest clients deploy beside the oracle's, for every fraction, way of voting and attack."""
    found = runs("beyond-deployed")
    lines: dict[tuple[float, str], list[str]] = {}
    for fraction, how, _, mine, ceiling in cells(found):
        top = f"{fmean(map(deployed, ceiling)):.3f}" if ceiling else "–"
        lines.setdefault((fraction, how), [str(fraction), top, how]).append(beside(mine, ceiling))
    table = markdown(["Byzantine", "oracle", "votes", *ATTACKS], lines.values())
    return table + foot(found) + "\n" + tally(found)


def tally(found: Sequence[Kept]) -> str:
    """How many cells lie how far from the oracle."""
    gaps = [far.mean for *_, mine, ceiling in cells(found) if (far := gap(mine, ceiling)) is not None]
    if not gaps:
        return "Not run yet.\n"
    near, lost = sum(value >= -SHORT_BY for value in gaps), sum(value < -2 * SHORT_BY for value in gaps)
    best = [summary_gap(mine, ceiling) for *_, mine, ceiling in cells(found) if mine and ceiling]
    return (
        f"**{near} of {len(gaps)} cells lie within 0.01 of what the oracle's clients deploy, {lost} beyond 0.02; "
        f"the mean distance is {fmean(gaps):+.4f}, the largest {min(gaps):+.3f}.** By the paper's measure, "
        "the best model of the list by test accuracy, which no client knows, "
        f"{sum(value >= -SHORT_BY for value in best)} lie within 0.01.\n"
    )


def summary_gap(found: Sequence[Kept], ceiling: Sequence[Kept]) -> float:
    """How far the best model lies from the oracle's in the mean over the seeds that both have."""
    best = {run.experiment.seed: accuracy(run) for run in ceiling}
    return fmean(accuracy(run) - best[run.experiment.seed] for run in found if run.experiment.seed in best)


PRESET: dict[str, Any] = dict(rounds=25, judge="bounded", deploy="joined", candidates=3, parent="favourite") | dict(
    proposal="jurors:stride=2+rknn+average", times=4
)
"""What `lidfl-ranked` is; its list is so many times the shortest that is safe."""
SHORTEST = {0.6: 2, 0.8: 5}
LEVERS: dict[str, dict[str, Any]] = {
    "as it was: 150 rounds of 25 steps, by loss, best": dict(rounds=150, judge="loss", deploy="best"),
    "25 rounds of 150 steps": dict(judge="loss", deploy="best"),
    "and a bounded loss": dict(deploy="best"),
    "and 50 rounds of 75 steps instead": dict(rounds=50, deploy="best"),
    "and 10 rounds of 375 steps instead": dict(rounds=10, deploy="best"),
    "and by errors instead of a bounded loss": dict(judge="errors", deploy="best"),
    "and six jurors instead of three": dict(deploy="best", candidates=6),
    "and `soup`": dict(deploy="soup"),
    "and `alike`": dict(deploy="alike"),
    "and `joined`: the preset": {},
    "the preset with the shortest safe list": dict(times=1),
    "… with one twice as long": dict(times=2),
    "… with one eight times as long": dict(times=8),
    "… with stride 1": dict(proposal="jurors:stride=1+rknn+average"),
    "… with stride 3": dict(proposal="jurors:stride=3+rknn+average"),
    "… with jurors alone": dict(proposal="jurors:stride=2"),
    "… without RKNN": dict(proposal="jurors:stride=2+average"),
    "… with parents that are drawn": dict(parent="uniform"),
}
"""What was changed one by one, on seeds that no other table uses."""


def levered(found: Iterable[Kept], fraction: float, changes: Mapping[str, Any]) -> list[Kept]:
    """The runs of the preset with something changed."""
    wanted = PRESET | dict(changes)
    length = wanted.pop("times") * SHORTEST[fraction]
    return such(found, byzantine_fraction=fraction, method="lidfl-ranked", list_size=length, **wanted)


def search() -> str:
    """What each lever brings: the distance of what clients deploy from the oracle's, with its interval."""
    found = runs("beyond-search")
    lines = []
    for name, changes in LEVERS.items():
        mine = {fraction: levered(found, fraction, changes) for fraction in SHORTEST}
        texts = []
        for fraction, some in mine.items():
            far = gap(some, such(found, byzantine_fraction=fraction, method="oracle", rounds=25))
            texts.append(far.text() if far else "–")
        seconds = [run.summary["seconds"] for some in mine.values() for run in some]
        lines.append([name, *texts, f"{fmean(seconds):.0f}" if seconds else "–"])
    head = ["lidfl-ranked", "60 %: from the oracle", "80 %: from the oracle", "seconds here"]
    return markdown(head, lines) + seeds(found)


PARTITIONS = ("iid:sizes=lognormal", "by_writer", "dirichlet:concentration=0.5", "dirichlet:concentration=0.1")


def hetero() -> str:
    """Clients whose data differ: what they deploy under each attack beside training alone, and the oracle's."""
    found = runs("beyond-hetero")
    at = [such(found, partition=partition) for partition in PARTITIONS]
    alone, ceiling = ([such(some, method=name) for some in at] for name in ("local", "oracle"))
    lines = [
        [name, *(f"{fmean(map(deployed, some)):.3f}" if some else "–" for some in kind)]
        for name, kind in (("nobody: the oracle", ceiling), ("nobody: training alone", alone))
    ]
    ours = such(found, method="lidfl-ranked")
    for attack in sorted({run.experiment.attack for run in ours}):
        mine = [such(some, method="lidfl-ranked", attack=attack) for some in at]
        lines.append([f"`{attack}`", *(beside(*pair) for pair in zip(mine, alone, strict=True))])
    return markdown(["attack", *PARTITIONS], lines) + foot(found)


def votes() -> str:
    """The paper's protocol under colluding voters, by plurality and by ranked ballots."""
    found = such(runs("beyond-votes"), rounds=1500)
    rows = [("plurality", 1, how) for how in ("worst", "coordinated", "coordinated:aim=best")]
    rows += [("ranked", 3, how) for how in ("worst", "coordinated")]
    lines = []
    for election, candidates, how in rows:
        at = such(found, election=election, candidates=candidates, vote_attack=how)
        lines.append([election, str(candidates), how, *(text(such(at, attack=a)) for a in ("lie", "sign_flip"))])
    return markdown(["election", "candidates", "votes", "lie", "sign_flip"], lines) + foot(found)


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
        steps, megabytes = (rounds * each for each in per_round(reached[0]))
        lines.append([label, f"{rounds:.0f}", f"{steps:,.0f}", f"{megabytes:,.0f}", f"{seconds:.1f}"])
    header = ["method", "rounds", "gradient steps, all clients", "MB sent, all clients", "seconds here"]
    return markdown(header, lines) + seeds(found)


def per_round(run: Kept) -> tuple[float, float]:
    """The gradient steps of all clients in a mean round, and the megabytes that travel."""
    costs = costs_of(run.experiment, run.summary, parameters=LR_PARAMETERS)
    assert costs is not None
    assert costs.bytes_down is not None
    assert costs.bytes_up is not None
    rounds = run.experiment.rounds
    return costs.gradient_steps / rounds, (costs.bytes_down + costs.bytes_up) / rounds / 1e6


PARTITIONS = ("iid:sizes=lognormal", "by_writer", "dirichlet:concentration=0.5", "dirichlet:concentration=0.1")
EQUAL_STEPS = ((150, 25), (50, 75), (25, 150), (10, 375))
EQUAL_ROUNDS = ((25, 25), (25, 75), (25, 150), (25, 375))


def steps() -> str:
    """Local steps a round at equal gradient steps and at equal rounds, where clients are alike and where not."""
    found = runs("beyond-steps")
    return "\n".join(_by_steps(found, kinds) for kinds in (EQUAL_STEPS, EQUAL_ROUNDS)) + foot(found)


def _by_steps(found: Sequence[Kept], kinds: Sequence[tuple[int, int]]) -> str:
    """A row a partition, a column so many rounds of so many steps; beside the oracle of as many."""
    lines = []
    for partition, (rounds, local_steps) in product(PARTITIONS, kinds):
        at = such(found, partition=partition, rounds=rounds, local_steps=local_steps)
        cell = beside(such(at, method="lidfl-ranked"), such(at, method="oracle"))
        if (rounds, local_steps) == kinds[0]:
            lines.append([partition])
        lines[-1].append(cell)
    return markdown(["partition", *(f"{rounds} × {steps}" for rounds, steps in kinds)], lines)


def cnn() -> str:
    """The CNN at equal gradient steps."""
    found = runs("beyond-cnn")
    lines: dict[tuple[float, str], list[str]] = {}
    for fraction, how, attack in product((0.6, 0.8), ("worst", "coordinated"), ("gauss", "lie", "sign_flip")):
        at = such(found, byzantine_fraction=fraction)
        ceiling, mine = such(at, method="oracle"), such(at, vote_attack=how, attack=attack, method="lidfl-ranked")
        top = f"{fmean(map(deployed, ceiling)):.3f}" if ceiling else "–"
        lines.setdefault((fraction, how), [str(fraction), top, how]).append(beside(mine, ceiling))
    return markdown(["Byzantine", "oracle", "votes", "gauss", "lie", "sign_flip"], lines.values()) + foot(found)


NEAR = 0.015
"""How near to the oracle other data sets shall come."""


def small() -> str:
    """Digits and CIFAR-10 with the linear model and a network: from what the oracle's clients deploy."""
    found = runs("beyond-small")
    lines, gaps = [], []
    for data, model, fraction in product(("digits", "cifar10"), ("lr", "mlp"), (0.6, 0.8)):
        at = such(found, dataset=data, model=model, byzantine_fraction=fraction)
        ceiling = such(at, method="oracle")
        top = f"{fmean(map(deployed, ceiling)):.3f}" if ceiling else "–"
        mine = [worst_vote(such(at, attack=attack, method="lidfl-ranked"), ceiling) for attack in ATTACKS]
        gaps += [far.mean for some in mine if (far := gap(some, ceiling)) is not None]
        lines.append([data, model, str(fraction), top, *(beside(some, ceiling) for some in mine)])
    told = f"\n**{sum(far >= -NEAR for far in gaps)} of {len(gaps)} cells lie within {NEAR} of the oracle's.**\n"
    return markdown(["data", "model", "Byzantine", "oracle", *ATTACKS], lines) + foot(found) + told


def worst_vote(found: Sequence[Kept], ceiling: Sequence[Kept]) -> list[Kept]:
    """The runs under that way of voting which costs clients most; none if there are none."""
    by_vote = [such(found, vote_attack=how) for how in VOTES]
    tried = [some for some in by_vote if gap(some, ceiling) is not None]
    return min(tried, key=lambda some: fmean(map(deployed, some)), default=[])


def newcomers() -> str:
    """What those deploy who have hardly any data, or none: the mean over attacks and seeds."""
    path = ROOT / "docs" / "newcomers.json"
    found = json.loads(path.read_text()) if path.exists() else []
    cases = list(product((0.6, 0.8), ("worst", "coordinated")))

    def row(name: str, kind: str, *keys: str) -> list[str]:
        texts = []
        for fraction, how in cases:
            those = [one for one in found if (one["byzantine_fraction"], one["vote_attack"]) == (fraction, how)]
            values = [reached(one[kind], keys) for one in those]
            texts.append(f"{fmean(values):.3f} ({min(values):.3f})" if values else "–")
        return [name, *texts]

    kinds = found[0] if found else {"images": {}, "trust": {}}
    rows = [row(f"{n} images, `{rule}`", "images", n, rule) for n in kinds["images"] for rule in ("best", "alike")]
    rows += [row(f"none: {name}", "trust", name) for name in kinds["trust"]]
    commits = ", ".join(sorted({one["commit"] for one in found}))
    seen = ", ".join(map(str, sorted({one["seed"] for one in found})))
    header = ["own validation images", *(f"{fraction:.0%}, {how}" for fraction, how in cases)]
    return markdown(header, rows) + f"\nSeeds {seen}; commit {commits}.\n"


def reached(found: Any, keys: Sequence[str]) -> float:
    """What lies at the end of a path of keys."""
    for key in keys:
        found = found[key]
    return float(found)


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
    "search": search,
    "votes": votes,
    "cost": cost,
    "hetero": hetero,
    "steps": steps,
    "newcomers": newcomers,
    "small": small,
    "cnn": cnn,
    "million": million,
}


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), TABLES), encoding="utf-8")
