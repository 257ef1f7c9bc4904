"""The paper's tables: run again, ours beside the paper's, cell by cell."""

import csv
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from math import isnan
from pathlib import Path
from typing import Any

from rich.table import Table

from lidfl.errors import LidflError
from lidfl.settings.experiment import Experiment
from lidfl.studies.sweep import Result, Sweep, read_sweep
from lidfl.studies.tables import Cell, Grid, distinct, setting, tabulate

ROOM = Path(__file__).parent
PLACES = [ROOM.parent / "experiments", ROOM.parents[2] / "experiments"]
"""In the installed package, or in a clone."""

OURS = ("adversary", "beyond", "field")
"""How the names of our own experiments begin."""

MOST_SCALE = 1000
"""How many times the paper's rounds may be played."""


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
    """Every experiment: the paper's, and our own."""
    return sorted(path.stem for path in folder().glob("*.toml"))


def names_of_the_paper() -> list[str]:
    """The paper's experiments."""
    return [name for name in names() if not name.startswith(OURS)]


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
    if not 0 < scale <= MOST_SCALE:
        raise LidflError(f"scale must be positive and at most {MOST_SCALE:,}, not {scale}")
    if seeds is not None and seeds < 1:
        raise LidflError(f"seeds must be at least 1, not {seeds}")
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


def compared_as_rich(grid: Grid, cells: Sequence[Compared]) -> Table:
    """A table for the terminal: ours, the paper's in brackets, the difference below."""
    texts = {(cell.row, cell.column): _text(cell) for cell in cells}
    table = Table(grid.corner, *grid.columns, show_lines=True)
    for row in grid.rows:
        table.add_row(row, *(texts[row, column] for column in grid.columns))
    return table


def compared_as_dict(name: str, cells: Sequence[Compared]) -> dict[str, Any]:
    """For programs: every cell of ours beside the paper's."""
    return dict(
        experiment=name,
        cells=[
            dict(
                row=cell.row,
                column=cell.column,
                mean=cell.ours.mean,
                deviation=cell.ours.deviation,
                values=cell.ours.values,
                paper=cell.paper,
                difference=cell.difference,
            )
            for cell in cells
        ],
    )


def _text(cell: Compared) -> str:
    if cell.paper is None:
        return cell.ours.text()
    difference = "" if cell.difference is None else f" {cell.difference:+.2f}"
    return f"{cell.ours.text()}\n({cell.paper:.2f}){difference}"
