"""The paper's tables: run again, ours beside the paper's, cell by cell."""

import csv
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from math import isnan
from pathlib import Path
from typing import Any, TypeAlias

from rich.table import Table

from lidfl.checkpoint import write_atomically
from lidfl.config import Experiment
from lidfl.errors import LidflError
from lidfl.rundir import RunDirectory
from lidfl.sweep import Sweep, directory_name, read_sweep, results
from lidfl.tables import Cell, Grid, Result, distinct, setting, tabulate

PLACES = [Path(__file__).parent / "experiments", Path(__file__).parents[2] / "experiments"]
"""In the installed package, or in a clone."""

Kept: TypeAlias = dict[str, Any]
"""A run in a results file: its settings, its summary and its accuracy over rounds."""


@dataclass(frozen=True)
class Compared:
    """One cell of a table: what the paper reports, and what we found."""

    row: str
    column: str
    paper: float | None
    paper_deviation: float | None
    ours: Cell

    @property
    def difference(self) -> float | None:
        """Ours less the paper's."""
        return None if self.paper is None or isnan(self.ours.mean) else self.ours.mean - self.paper


def folder() -> Path:
    """Where the experiment files and the paper's numbers are."""
    for place in PLACES:
        if (place / "paper.csv").exists():
            return place
    raise LidflError("the experiments folder is missing; run this from a clone of the repository")


def names() -> list[str]:
    """Every experiment of the paper."""
    return sorted(path.stem for path in folder().glob("*.toml"))


def paper_numbers(name: str) -> dict[tuple[str, str], tuple[float, float | None]]:
    """The paper's mean and deviation, by row and column of its table."""
    with (folder() / "paper.csv").open(encoding="utf-8", newline="") as file:
        lines = [line for line in csv.DictReader(file) if line["experiment"] == name]
    return {
        (line["row"], line["column"]): (float(line["mean"]), float(line["std"]) if line["std"] else None)
        for line in lines
    }


def planned(
    name: str,
    *,
    scale: float = 1.0,
    seeds: int | None = None,
    groups: Sequence[str] = (),
    columns: Sequence[str] = (),
    out: Path | None = None,
) -> Sweep:
    """The runs of one of the paper's experiments, or fewer: shorter, with fewer seeds, some groups or columns."""
    if name not in names():
        raise LidflError(f"unknown experiment '{name}'; choose from {', '.join(names())}")
    if not scale > 0:
        raise LidflError(f"scale must be positive, not {scale}")
    sweep = read_sweep(folder() / f"{name}.toml", out, scale=scale)
    _check(f"{name} has no group", groups, {experiment.name for experiment in sweep.runs})
    _check(f"{name} has no column", columns, distinct(sweep.runs, sweep.columns))
    kept_seeds = list(dict.fromkeys(e.seed for e in sweep.runs))[:seeds]

    def kept(experiment: Experiment) -> bool:
        return (
            experiment.seed in kept_seeds
            and (not groups or experiment.name in groups)
            and (not columns or setting(experiment, sweep.columns) in columns)
        )

    return replace(sweep, runs=tuple(filter(kept, sweep.runs)))


def _check(complaint: str, asked: Iterable[str], known: Collection[str]) -> None:
    for one in asked:
        if one not in known:
            raise LidflError(f"{complaint} '{one}'; choose from {', '.join(sorted(known))}")


class Store:
    """Results of an experiment that outlive their run directories: one small JSON file, to be committed.

    It holds, for every run by its directory's name, the settings, the summary and the accuracy over rounds. What
    two experiments share, such as LiD-FL at 0.6, is run once: a store takes it from the files beside its own.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self.path = directory / f"{name}.json"
        self.runs = _read(self.path)
        self.beside = {key: run for path in sorted(directory.glob("*.json")) for key, run in _read(path).items()}

    def missing(self, sweep: Sweep) -> Sweep:
        """The runs of a sweep that are kept neither here nor beside."""
        return replace(sweep, runs=tuple(e for e in sweep.runs if directory_name(e) not in self.beside))

    def keep(self, sweep: Sweep) -> None:
        """Add the finished runs of a sweep, and those that another experiment finished."""
        self.runs |= {key: self.beside[key] for key in map(directory_name, sweep.runs) if key in self.beside}
        for experiment, summary in results(sweep):
            content = {key: value for key, value in summary.items() if key != "experiment"}
            directory = RunDirectory(experiment.out)
            settings = asdict(experiment) | {"out": directory_name(experiment)}
            self.runs[directory_name(experiment)] = {
                "settings": settings,
                "summary": content,
                "curve": accuracy_curve(directory),
                "milestones": milestones(directory),
            }
        if not self.runs:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(dict(sorted(self.runs.items())), indent=None, separators=(",", ":"))
        write_atomically(self.path, (text.replace('},"', '},\n"') + "\n").encode())

    def results(self, sweep: Sweep) -> list[Result]:
        """The runs of a sweep that are kept here."""
        return [_result(self.runs[directory_name(e)]) for e in sweep.runs if directory_name(e) in self.runs]

    def everything(self) -> list[Result]:
        """What is kept here, every run at the most rounds that it was played."""
        return list(map(_result, longest(self.runs.values())))


def longest(kept: Iterable[Kept]) -> list[Kept]:
    """Of kept runs that differ in nothing but their rounds, the one with the most."""
    best: dict[str, Kept] = {}
    for run in kept:
        key = but_for_rounds(Experiment.of(run["settings"]))
        if key not in best or best[key]["settings"]["rounds"] < run["settings"]["rounds"]:
            best[key] = run
    return list(best.values())


def but_for_rounds(experiment: Experiment) -> str:
    """The same for two experiments that differ in nothing but their rounds."""
    return directory_name(replace(experiment, rounds=1))


def _result(run: Kept) -> Result:
    return Experiment.of(run["settings"]), run["summary"]


def _read(path: Path) -> dict[str, Kept]:
    runs: dict[str, Kept] = json.loads(path.read_text()) if path.exists() else {}
    return runs


def accuracy_curve(directory: RunDirectory, points: int = 60) -> list[tuple[int, float]]:
    """The best model's accuracy over rounds, thinned to a number of points; the last one is kept."""
    tested = [line for line in directory.lines() if "accuracy" in line]
    curve = [(line["round"] + 1, round(max(line["accuracy"].values()), 4)) for line in tested]
    step = -(-len(curve) // points)
    return curve[::-1][::step][::-1]


def milestones(directory: RunDirectory, levels: Sequence[float] = (0.5, 0.55, 0.6)) -> dict[str, tuple[int, float]]:
    """For each accuracy that the best model reached when it was tested: after how many rounds and seconds."""
    reached: dict[str, tuple[int, float]] = {}
    seconds = 0.0
    for line in directory.lines():
        seconds += line.get("seconds", 0.0)
        best = max(line.get("accuracy", {}).values(), default=0.0)
        for level in levels:
            if best >= level:
                reached.setdefault(str(level), (line["round"] + 1, round(seconds, 3)))
    return reached


def compare(sweep: Sweep, found: Sequence[Result]) -> tuple[Grid, list[Compared]]:
    """Our table of a sweep's results, and every cell of it beside the paper's; where nothing ran, it is empty."""
    grid = replace(
        tabulate(found, sweep.rows, sweep.columns, sweep.value),
        rows=distinct(sweep.runs, sweep.rows),
        columns=distinct(sweep.runs, sweep.columns),
    )
    numbers = paper_numbers(sweep.name)
    cells = []
    for row in grid.rows:
        for column in grid.columns:
            paper, deviation = numbers.get((row, column), (None, None))
            cells.append(Compared(row, column, paper, deviation, grid.cell(row, column)))
    return grid, cells


def as_rich(grid: Grid, cells: Sequence[Compared]) -> Table:
    """A table for the terminal: ours, the paper's in brackets, the difference below."""
    texts = {(cell.row, cell.column): _text(cell) for cell in cells}
    table = Table(grid.corner, *grid.columns, show_lines=True)
    for row in grid.rows:
        table.add_row(row, *(texts[row, column] for column in grid.columns))
    return table


def _text(cell: Compared) -> str:
    if cell.paper is None:
        return cell.ours.text()
    difference = "" if cell.difference is None else f" {cell.difference:+.2f}"
    return f"{cell.ours.text()}\n({cell.paper:.2f}){difference}"
