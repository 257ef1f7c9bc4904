"""What a report is made from: the records of a run, or the results of many."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from lidfl.config import Experiment
from lidfl.errors import LidflError
from lidfl.report.lineage import Lineage, trace
from lidfl.reproduce import accuracy_curve, but_for_rounds, longest
from lidfl.rundir import Line, RunDirectory
from lidfl.sweep import NOT_CONTENT
from lidfl.tables import Cell, Grid, read_results, setting, tabulate

Curve = list[tuple[int, float]]
"""The best model's accuracy by round."""

MOST_POINTS = 150
"""How many rounds of a run are drawn one by one."""

SCENE = ("dataset", "model", "byzantine_fraction")
"""Settings that make a chapter of a sweep's report."""

NOT_ROWS = NOT_CONTENT | {*SCENE, "attack", "method", "aggregator", "seed", "eval_every"}
"""Settings that do not tell one row of a sweep's table from another, or do so already."""


@dataclass(frozen=True)
class RunRecords:
    """A run as its directory tells it."""

    directory: RunDirectory
    experiment: Experiment
    lines: list[Line]
    summary: dict[str, Any] | None
    """The result; None if the run is unfinished."""

    @classmethod
    def read(cls, path: Path) -> "RunRecords":
        """The run in a directory, as far as it has come."""
        directory = RunDirectory(path)
        lines = list(directory.lines()) if directory.rounds_file.exists() else []
        if not lines:
            raise LidflError(f"{path} has no finished round yet; report on it once it has")
        summary = directory.summary() if (path / "summary.json").exists() else None
        return cls(directory, directory.experiment(), lines, summary)

    @property
    def tested(self) -> list[Line]:
        """The rounds after which the list was tested."""
        return [line for line in self.lines if "accuracy" in line]

    @property
    def diverged_at(self) -> int | None:
        """The round in which a single model was beyond help."""
        found: int | None = (self.summary or {}).get("diverged_at")
        return found

    @property
    def rounds_done(self) -> int:
        """How many rounds are recorded."""
        return len(self.lines)

    @cached_property
    def lineage(self) -> Lineage:
        """The family tree of its models."""
        return trace(self.lines, self.experiment.list_size)

    def seconds_by_phase(self) -> dict[str, float]:
        """Where the time of all rounds went, the longest first; what no phase counted is the rest."""
        phases: dict[str, float] = {}
        for line in self.lines:
            for phase, seconds in line["phases"].items():
                phases[phase] = phases.get(phase, 0.0) + seconds
        rest = self.seconds - sum(phases.values())
        if rest > 0.01 * self.seconds:
            phases["the rest"] = rest
        return dict(sorted(phases.items(), key=lambda item: -item[1]))

    @property
    def seconds(self) -> float:
        """The time of all rounds."""
        return float(sum(line["seconds"] for line in self.lines))


def list_after(line: Line) -> list[int]:
    """The models that stayed in the list after a round."""
    return [int(model) for model in line["votes"] if int(model) not in line["removed"]]


def lowest_losses(lines: Iterable[Line]) -> Curve:
    """After each round the lowest mean validation loss in the list."""
    curve = []
    for line in lines:
        known = [loss for model in list_after(line) if (loss := line["loss"].get(str(model))) is not None]
        curve += [(line["round"] + 1, min(known))] if known else []
    return curve


def smallest_margin(lines: Iterable[Line]) -> tuple[int, int] | None:
    """The smallest margin of a vote and its round; None if no line tells one."""
    told = [(line["margin"], line["round"] + 1) for line in lines if line.get("margin") is not None]
    return min(told) if told else None


@dataclass(frozen=True)
class Played:
    """One run of a sweep: all that the sweep's report needs of it."""

    experiment: Experiment
    summary: dict[str, Any]
    curve: Curve

    @property
    def diverged(self) -> bool:
        """Whether its single model was beyond help before the last round."""
        return self.summary.get("diverged_at") is not None

    def accuracy_at(self, round_number: int) -> float | None:
        """The accuracy when it was last tested; a model that diverged keeps its own for the rounds left."""
        if self.diverged and round_number >= self.summary["diverged_at"]:
            return float(self.summary["test_accuracy"])
        known = [accuracy for tested, accuracy in self.curve if tested <= round_number]
        return known[-1] if known else None


def read_folder(folder: Path) -> list[Played]:
    """The finished runs below a folder."""
    return [Played(e, summary, accuracy_curve(RunDirectory(e.out))) for e, summary in read_results(folder)]


def unfinished(folder: Path) -> int:
    """How many runs below a folder have no result yet."""
    return sum(not (path.parent / "summary.json").exists() for path in folder.rglob("experiment.toml"))


def read_store(path: Path) -> list[Played]:
    """The runs of a results file that `lidfl reproduce` wrote; of those that differ in rounds, the longest."""
    try:
        runs = longest(json.loads(path.read_text(encoding="utf-8")).values())
        found = [(run["settings"], run["summary"], run["curve"]) for run in runs]
    except (OSError, ValueError, AttributeError, TypeError, KeyError):
        raise LidflError(
            f"{path} is not a results file of `lidfl reproduce`; name one, or a run directory"
        ) from None
    if not found:
        raise LidflError(f"there are no results in {path}; fill it with `lidfl reproduce {path.stem}`")
    return [
        Played(Experiment.of(settings), summary, [(tested, value) for tested, value in curve])
        for settings, summary, curve in found
    ]


@dataclass(frozen=True)
class Scene:
    """The runs of a sweep that share data set, model and Byzantine fraction."""

    title: str
    runs: list[Played]
    rows: str
    """The settings that tell its methods apart, as `lidfl.tables` takes them."""
    columns: str
    """The settings that tell its attacks apart."""

    @cached_property
    def rounds(self) -> int:
        """The most rounds of a run."""
        return max(run.experiment.rounds for run in self.runs)

    def method(self, run: Played) -> str:
        """The row of a run."""
        return setting(run.experiment, self.rows)

    def attack(self, run: Played) -> str:
        """The column of a run."""
        return setting(run.experiment, self.columns)

    @property
    def methods(self) -> list[str]:
        """Its rows, those of LiD-FL first."""
        names = {self.method(run): run.experiment.keeps_list for run in self.runs}
        return sorted(names, key=lambda name: (not names[name], name))

    @property
    def attacks(self) -> list[str]:
        """Its columns."""
        return sorted({self.attack(run) for run in self.runs})

    @cached_property
    def grid(self) -> Grid:
        """Its table of test accuracy."""
        order = {name: place for place, name in enumerate(self.methods)}
        runs = sorted(self.runs, key=lambda run: (self.attack(run), order[self.method(run)]))
        grid = tabulate([(run.experiment, run.summary) for run in runs], self.rows, self.columns)
        return Grid(grid.corner, tuple(self.methods), tuple(self.attacks), grid.cells)

    def of(self, method: str, attack: str) -> list[Played]:
        """The runs of one cell, which differ in their seeds."""
        return [run for run in self.runs if self.method(run) == method and self.attack(run) == attack]


def scenes(runs: Iterable[Played]) -> list[Scene]:
    """A sweep in chapters, in the order of data set, model and Byzantine fraction."""

    def key(run: Played) -> tuple[str, str, float]:
        return run.experiment.dataset, run.experiment.model, run.experiment.byzantine_fraction

    found = []
    for (dataset, model, fraction), group in groupby(sorted(runs, key=key), key):
        members = list(group)
        found.append(Scene(f"{dataset}-{model}, {percent(fraction)} Byzantine", members, *_axes(members)))
    return found


def _axes(runs: Sequence[Played]) -> tuple[str, str]:
    """What tells rows and columns apart.

    Rows are methods, and each setting in which runs of one method differ; columns are attacks. An attack on the
    vote is a column too, unless nothing else tells rows apart.
    """
    varying = _varying(runs)
    others = [name for name in varying if name != "vote_attack"]
    if others and len(others) < len(varying):
        return " ".join(["method", *others]), "attack vote_attack"
    return " ".join(["method", *varying]), "attack"


def _varying(runs: Sequence[Played]) -> list[str]:
    """Each setting in which runs of one method differ; rounds only if one was played for more and for less."""
    varying: dict[str, None] = {}
    first: dict[str, dict[str, Any]] = {}
    for run in runs:
        settings = {name: value for name, value in asdict(run.experiment).items() if name not in NOT_ROWS}
        other = first.setdefault(run.experiment.method_label, settings)
        varying |= {name: None for name in settings if settings[name] != other[name]}
    if "rounds" in varying and len({but_for_rounds(run.experiment) for run in runs}) == len(runs):
        del varying["rounds"]
    return list(varying)


def percent(fraction: float) -> str:
    """A fraction as text: 0.6 is 60 %."""
    return f"{100 * fraction:.2g}\u00a0%" if 0 < fraction < 0.995 else f"{100 * fraction:.0f}\u00a0%"


@dataclass(frozen=True)
class Point:
    """One point of a curve with its band: a mean over seeds."""

    round: int
    mean: float
    deviation: float
    runs: int


def mean_curve(runs: Sequence[Played]) -> list[Point]:
    """The mean and deviation over runs, at the rounds of the run that was tested most often."""
    grid = [tested for tested, _ in max((run.curve for run in runs), key=len)]
    last = max(run.experiment.rounds for run in runs)
    points = []
    for round_number in grid if grid[-1:] == [last] else [*grid, last]:
        cell = Cell(tuple(value for run in runs if (value := run.accuracy_at(round_number)) is not None))
        if cell.values:
            points.append(Point(round_number, cell.mean, cell.deviation, len(cell.values)))
    return points
