"""Results that outlive their run directories: small JSON files, to be committed.

A file holds, for every run by its directory's name, the settings, the summary and the accuracy over rounds. What
two experiments share, such as LiD-FL at 0.6, is run once: it is taken from the files beside.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from lidfl.errors import LidflError
from lidfl.files import fits, parse_json, write_atomically
from lidfl.runs.directory import RunDirectory
from lidfl.runs.results import Summary, is_summary
from lidfl.settings.experiment import Experiment
from lidfl.studies.sweep import Result, Sweep, but_for_rounds, directory_name

Curve = list[tuple[int, float]]
"""Accuracy by round."""
Milestones = dict[str, tuple[int, float]]
"""By accuracy: after how many rounds and seconds the best model reached it."""


NOT_KEPT = {"experiment", "deployed_recall"}
"""What of a summary is kept elsewhere, or is long and not kept."""


@dataclass(frozen=True)
class Kept:
    """A run that is kept."""

    experiment: Experiment
    summary: Summary
    curve: Curve
    """Of the best model."""
    milestones: Milestones
    deployed: Curve = field(default_factory=list)
    """Of what honest clients deploy; empty in files of earlier versions."""

    @classmethod
    def of(cls, experiment: Experiment, summary: Summary) -> "Kept":
        """What to keep of a finished run."""
        directory = RunDirectory(experiment.out)
        content = {key: value for key, value in summary.items() if key not in NOT_KEPT}
        curves = accuracy_curve(directory), deployed_curve(directory)
        return cls(experiment, content, curves[0], milestones(directory), curves[1])

    @property
    def result(self) -> Result:
        """Its settings and its summary."""
        return self.experiment, self.summary

    def to_json(self) -> dict[str, Any]:
        """As a file holds it; its directory may be gone, so only the name of that is kept."""
        settings = asdict(self.experiment) | {"out": directory_name(self.experiment)}
        content = dict(settings=settings, summary=self.summary, curve=self.curve, milestones=self.milestones)
        return content | ({"deployed": self.deployed} if self.deployed else {})

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Kept":
        """Read a kept run back; nothing that it names is looked up."""
        curve, deployed = (
            [(at, value) for at, value in found] for found in (content["curve"], content.get("deployed", []))
        )
        summary, milestones = content["summary"], content.get("milestones", {})
        if not is_summary(summary) or not all(fits(n, int) and fits(v, float) for n, v in (*curve, *deployed)):
            raise ValueError("its summary or its curve is damaged")
        if not fits(milestones, dict[str, object]):
            raise ValueError("its milestones are damaged")
        return cls(Experiment.recorded(content["settings"]), summary, curve, milestones, deployed)


def read_kept(path: Path) -> dict[str, Kept]:
    """The runs in a results file, by their directories' names."""
    try:
        content = parse_json(path.read_bytes())
        return {name: Kept.from_json(run) for name, run in content.items()}
    except (OSError, ValueError, AttributeError, TypeError, KeyError, LidflError) as error:
        raise LidflError(
            f"{path} is not a results file of `lidfl reproduce` ({error}); name one, or a run directory"
        ) from None


class Shelf:
    """All results files of a folder, each read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[Path, dict[str, Kept]] = {}

    def file(self, name: str) -> Path:
        """Where the results of an experiment are kept."""
        return self.folder / f"{name}.json"

    def read(self, path: Path) -> dict[str, Kept]:
        """What a file holds; nothing if it is not there."""
        if path not in self._files:
            self._files[path] = read_kept(path) if path.exists() else {}
        return self._files[path]

    @cached_property
    def everything(self) -> dict[str, Kept]:
        """What all files hold."""
        found: dict[str, Kept] = {}
        for path in sorted(self.folder.glob("*.json")):
            found |= self.read(path)
        return found

    def missing(self, sweep: Sweep) -> list[Experiment]:
        """The runs of a sweep that no file holds."""
        return [e for e in sweep.runs if directory_name(e) not in self.everything]

    def keep(self, sweep: Sweep) -> None:
        """Add the finished runs of a sweep to its file, and those that another experiment finished."""
        names = map(directory_name, sweep.runs)
        runs = self.of(sweep.name) | {name: self.everything[name] for name in names if name in self.everything}
        runs |= {directory_name(e): Kept.of(e, summary) for e, summary in sweep.results()}
        if runs == self.of(sweep.name):
            return
        self._files[self.file(sweep.name)] = runs
        self.folder.mkdir(parents=True, exist_ok=True)
        content = {name: run.to_json() for name, run in sorted(runs.items())}
        text = json.dumps(content, indent=None, separators=(",", ":"))
        write_atomically(self.file(sweep.name), (text.replace('},"', '},\n"') + "\n").encode())

    def of(self, name: str) -> dict[str, Kept]:
        """What the file of an experiment holds."""
        return self.read(self.file(name))

    def results(self, sweep: Sweep) -> list[Result]:
        """The runs of a sweep that are in its file."""
        runs = self.of(sweep.name)
        return [runs[name].result for name in map(directory_name, sweep.runs) if name in runs]

    def longest_results(self, name: str) -> list[Result]:
        """What the file of an experiment holds, every run at the most rounds that it was played."""
        return [run.result for run in longest(self.of(name).values())]


def longest(kept: Iterable[Kept]) -> list[Kept]:
    """Of kept runs that differ in nothing but their rounds, the one with the most."""
    best: dict[str, Kept] = {}
    for run in kept:
        key = but_for_rounds(run.experiment)
        if key not in best or best[key].experiment.rounds < run.experiment.rounds:
            best[key] = run
    return list(best.values())


def accuracy_curve(directory: RunDirectory, points: int = 60) -> Curve:
    """The best model's accuracy over rounds, thinned to a number of points; the last one is kept."""
    return _thinned([(r.number, round(r.best_accuracy, 4)) for r in directory.records() if r.tested], points)


def deployed_curve(directory: RunDirectory, points: int = 60) -> Curve:
    """The accuracy over rounds of what honest clients deploy, thinned alike."""
    told = [(r.number, r.deployed_accuracy) for r in directory.records() if r.tested]
    return _thinned([(number, round(value, 4)) for number, value in told if value is not None], points)


def _thinned(curve: Curve, points: int) -> Curve:
    step = max(1, -(-len(curve) // points))
    return curve[::-1][::step][::-1]


def milestones(directory: RunDirectory, levels: Sequence[float] = (0.5, 0.55, 0.6)) -> Milestones:
    """For each accuracy that the best model reached when it was tested: after how many rounds and seconds."""
    reached: Milestones = {}
    seconds = 0.0
    for record in directory.records():
        seconds += record.seconds
        for level in levels:
            if record.tested and record.best_accuracy >= level:
                reached.setdefault(str(level), (record.number, round(seconds, 3)))
    return reached
