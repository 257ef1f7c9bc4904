"""What the pages of results share: kept runs, how they are chosen, and how far they lie from the oracle."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from lidfl.runs.costs import costs_of
from lidfl.studies.statistics import Difference, paired_difference
from lidfl.studies.store import Kept, read_kept
from lidfl.studies.tables import Cell

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
SHORT_BY = 0.01
"""What falls further below the oracle than this is shown in bold."""


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


def foot(found: Iterable[Kept]) -> str:
    """What a run of each method costs on average, what the worst honest client gets, and which runs these are."""
    found = list(found)
    labels = dict.fromkeys(run.experiment.method_label for run in found)
    told = [_cost([run for run in found if run.experiment.method_label == label], label) for label in labels]
    return f"\nA run on average: {'; '.join(told)}.\n{seeds(found)}"


def _cost(found: Sequence[Kept], label: str) -> str:
    """The means over some runs of one method."""
    costs = [costs_of(run.experiment, run.summary, parameters=run.summary.get("parameters")) for run in found]
    known = [cost for cost in costs if cost is not None]
    parts = [f"{fmean(run.summary['seconds'] for run in found):,.0f} s"]
    if known:
        steps, ballots = (fmean(getattr(cost, name) for cost in known) for name in ("gradient_steps", "ballots"))
        sent = [cost.bytes_sent for cost in known if cost.bytes_sent is not None]
        megabytes = [f"{fmean(sent) / 1e6:,.0f} MB"] if sent else []  # earlier runs did not count bytes
        parts = [f"{steps:,.0f} gradient steps", *megabytes, f"{ballots:,.0f} ballots", *parts]
    worst = [run.summary["deployed_worst"] for run in found if "deployed_worst" in run.summary]
    if worst:
        parts.append(f"the worst honest client {fmean(worst):.3f}")
    return f"`{label}` {', '.join(parts)}"


def deployed(run: Kept) -> float:
    """What honest clients get."""
    return float(run.summary["deployed_accuracy"])


def gap(found: Sequence[Kept], ceiling: Sequence[Kept]) -> Difference | None:
    """How far what clients deploy lies from the oracle's, seed by seed."""
    values, best = ({run.experiment.seed: deployed(run) for run in some} for some in (found, ceiling))
    return paired_difference(values, best)


def beside(found: Sequence[Kept], ceiling: Sequence[Kept]) -> str:
    """What clients deploy, and how far it lies from the oracle's; bold beyond 0.01, a star if that is no chance."""
    far = gap(found, ceiling)
    if far is None:
        return "–"
    mark = "*" if far.excludes_zero else ""
    told = f"**{far.mean:+.3f}**{mark}" if far.mean < -SHORT_BY else f"{far.mean:+.3f}{mark}"
    return f"{fmean(map(deployed, found)):.3f} ({told})"


def filled(page: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """A page with every table between its marks made anew."""
    for name, make in tables.items():
        mark = f"<!-- {name} -->\n"
        page, changed = re.subn(rf"(?s){re.escape(mark)}.*?<!-- end -->", f"{mark}\n{make()}\n<!-- end -->", page)
        assert changed == 1, f"the page has no place for the table '{name}'"
    return page
