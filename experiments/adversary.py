"""The tables of docs/adversary.md, made from the kept results alone.

    python -m experiments.adversary     rewrites what stands between the marks `<!-- name -->` and `<!-- end -->`

`lidfl reproduce adversary-digits` and the others run what is missing in `results/`.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from experiments.kept import ROOT, deployed, filled, foot, runs, seeds, such
from lidfl.studies.store import Kept
from lidfl.studies.tables import Cell, markdown

Wanted: TypeAlias = Mapping[str, Any]
"""Settings that runs shall have."""
PAGE = ROOT / "docs" / "adversary.md"
SHORT_BY = 0.02
"""What falls further below the oracle than this is shown in bold."""


def text(found: Iterable[Kept]) -> str:
    """What honest clients get: mean ± deviation over seeds."""
    return Cell(tuple(map(deployed, found))).text()


def beside(found: Sequence[Kept], ceiling: Sequence[Kept]) -> str:
    """What honest clients get, and how far it lies from the oracle's with the same seeds."""
    best = {run.experiment.seed: deployed(run) for run in ceiling}
    gaps = [deployed(run) - best[run.experiment.seed] for run in found if run.experiment.seed in best]
    if not gaps:
        return text(found)
    gap = fmean(gaps)
    return f"{text(found)} ({f'**{gap:+.3f}**' if gap < -SHORT_BY else f'{gap:+.3f}'})"


def attacks_of(found: Iterable[Kept]) -> list[str]:
    """The attacks of some runs, in the order of the experiment."""
    return [attack for attack in dict.fromkeys(run.experiment.attack for run in found) if attack != "none"]


def by_attack(found: list[Kept], columns: Mapping[str, Wanted], title: str) -> str:
    """A table for each fraction: a row an attack, a column a method that was run, each beside the oracle."""
    tables = []
    columns = {name: wanted for name, wanted in columns.items() if such(found, **wanted)}
    for fraction in sorted({run.experiment.byzantine_fraction for run in found}):
        at = such(found, byzantine_fraction=fraction)
        ceiling = such(at, method="oracle")
        ours = [run for run in at if run.experiment.method != "oracle"]
        lines = [
            [f"`{attack}`", *(beside(such(ours, attack=attack, **wanted), ceiling) for wanted in columns.values())]
            for attack in sorted(attacks_of(ours))
        ]
        head = f"{title}{fraction:.0%} Byzantine; the oracle's clients deploy {text(ceiling)}.\n\n"
        tables.append(head + markdown(["attack", *columns], lines))
    return "\n".join(tables) + foot(found)


RANKED: dict[str, Wanted] = {
    "lidfl-ranked, worst votes": dict(method="lidfl-ranked", vote_attack="worst"),
    "lidfl-ranked, coordinated": dict(method="lidfl-ranked", vote_attack="coordinated"),
}
PAPERS: dict[str, Wanted] = {
    "lidfl, worst votes": dict(method="lidfl", balance=False, vote_attack="worst"),
    "lidfl, coordinated": dict(method="lidfl", balance=False, vote_attack="coordinated"),
    "lidfl with balance, worst votes": dict(method="lidfl", balance=True, vote_attack="worst"),
    "lidfl with balance, coordinated": dict(method="lidfl", balance=True, vote_attack="coordinated"),
}


def digits() -> str:
    """Every attack on digits, LR and MLP."""
    return _both("adversary-digits", {**RANKED, **PAPERS})


def femnist() -> str:
    """LR and MLP on FEMNIST."""
    return _both("adversary-femnist", {**RANKED, **PAPERS})


def femnist_before() -> str:
    """The same with the preset of before."""
    return _both("adversary-femnist-before", RANKED)


def _both(name: str, columns: Mapping[str, Wanted]) -> str:
    """The tables of the linear model and of the network, as far as they have been run."""
    found = [*runs(name), *runs(f"{name}-paper")]
    by_model = {model: such(found, model=model) for model in ("lr", "mlp")}
    return "\n".join(by_attack(some, columns, f"{model.upper()}, ") for model, some in by_model.items() if some)


def cnn() -> str:
    """The paper's CNN, after few rounds."""
    found = runs("adversary-cnn")
    lists = [run for run in found if run.experiment.method != "lidfl"]
    papers = such(found, method="lidfl")
    kinds: dict[str, Wanted] = {
        "none": dict(balance=False),
        "balance": dict(balance=True, lookahead=0),
        "balance and lookahead 3": dict(balance=True, lookahead=3),
    }
    attacks = attacks_of(papers)
    lines = [[name, *(text(such(papers, attack=a, **wanted)) for a in attacks)] for name, wanted in kinds.items()]
    table = markdown(["lidfl, 60 %, defence", *(f"`{attack}`" for attack in attacks)], lines)
    return by_attack(lists, RANKED, "CNN, ") + "\n" + table + seeds(papers)


def drift() -> str:
    """Attackers who drift for 300 rounds."""
    return _both("adversary-drift", RANKED)


def defences() -> str:
    """Each defence alone."""
    found = runs("adversary-defences")
    attacks = attacks_of(found)
    lines = []
    for method in ("lidfl", "lidfl-ranked"):
        kinds: dict[str, Wanted] = {
            "none": dict(balance=False, reach=0.0, lookahead=0),
            "reach 3": dict(balance=False, reach=3.0),
            "lookahead 3": dict(lookahead=3),
            "balance": dict(balance=True, reach=0.0),
            "balance and reach 3": dict(balance=True, reach=3.0),
        }
        for name, wanted in kinds.items():
            mine = such(found, method=method, **wanted)
            if mine:
                lines.append([method, name, *(text(such(mine, attack=attack)) for attack in attacks)])
    return markdown(["method", "defence", *(f"`{attack}`" for attack in attacks)], lines) + foot(found)


def absence() -> str:
    """Clients that come and go."""
    found = runs("adversary-absence")
    shares = sorted({run.experiment.availability for run in found}, reverse=True)
    lines = []
    for method, guess in (("lidfl", -1.0), ("lidfl", 0.9), ("lidfl-ranked", -1.0)):
        for who in ("honest", "both"):
            mine = such(found, method=method, absent=who, assumed_byzantine_fraction=guess)
            cells = (such(mine, availability=share) for share in shares)
            length = ", ".join(sorted({str(run.experiment.list_size) for run in mine}))
            lines.append([method, length, who, *map(text, cells)])
    head = ["method", "list", "who comes and goes", *(f"{share:.0%} there" for share in shares)]
    return markdown(head, lines) + foot(found)


def assumed() -> str:
    """A wrong guess."""
    found = runs("adversary-assumed")
    fractions = sorted({run.experiment.byzantine_fraction for run in found})
    ceilings = [such(found, method="oracle", byzantine_fraction=fraction) for fraction in fractions]
    lines = [["oracle", "", *map(text, ceilings)]]
    for method in ("lidfl", "lidfl-ranked"):
        for guess in (0.6, 0.8):
            mine = such(found, method=method, assumed_byzantine_fraction=guess)
            cells = (such(mine, byzantine_fraction=fraction) for fraction in fractions)
            lines.append([method, f"{guess:.0%}", *map(beside, cells, ceilings)])
    return markdown(["method", "assumed", *(f"truly {fraction:.0%}" for fraction in fractions)], lines) + seeds(
        found
    )


def backdoor() -> str:
    """How often a trigger works on what honest clients deploy, and what that costs on clean images."""
    found = runs("adversary-backdoor")
    lines = []
    for model in ("lr", "mlp"):
        for method in ("fedavg", "lidfl", "lidfl-ranked"):
            for rule in ("best", "tuned"):
                mine = such(found, model=model, method=method, deploy=rule)
                cells = [such(mine, byzantine_fraction=fraction) for fraction in (0.2, 0.6)]
                lines.append([model, method, rule, *(f"{success(cell)}; {text(cell)}" for cell in cells)])
    head = ["model", "method", "deployed", "20 %: trigger works; accuracy", "60 %: trigger works; accuracy"]
    return markdown(head, lines) + seeds(found)


def success(found: Sequence[Kept]) -> str:
    """The share of triggered images that are taken for the target."""
    return f"{fmean(run.summary['attack_success'] for run in found):.0%}" if found else "–"


def treatments() -> str:
    """What honest clients tried against a backdoor in what they picked."""
    path = ROOT / "docs" / "backdoor.json"
    if not path.exists():
        return "Not run yet.\n"
    told = json.loads(path.read_text(encoding="utf-8"))
    lines = [
        [row["dataset"], row["model"], row["treatment"], f"{row['success']:.0%}", f"{row['accuracy']:.3f}"]
        for row in told["rows"]
    ]
    head = ["data set", "model", "what is done", "trigger works", "accuracy"]
    return markdown(head, lines) + f"\nSeeds {', '.join(map(str, told['seeds']))}; commit {told['commit']}.\n"


TABLES: dict[str, Callable[[], str]] = {
    "digits": digits,
    "femnist": femnist,
    "femnist-before": femnist_before,
    "cnn": cnn,
    "drift": drift,
    "defences": defences,
    "absence": absence,
    "assumed": assumed,
    "backdoor": backdoor,
    "treatments": treatments,
}


def page(path: Path = PAGE) -> str:
    """The page with every table made anew."""
    return filled(path.read_text(encoding="utf-8"), TABLES)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
