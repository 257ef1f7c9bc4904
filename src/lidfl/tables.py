"""Tables of results: mean ± standard deviation over seeds, for the terminal and for papers."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import inf, nan
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from rich.table import Table

from lidfl.config import Experiment
from lidfl.errors import LidflError
from lidfl.rundir import RunDirectory

Result = tuple[Experiment, dict[str, Any]]
"""A finished run: its settings and its summary."""


@dataclass(frozen=True)
class Cell:
    """One cell: what several runs found that differ only in what is not shown."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean over runs."""
        return fmean(self.values) if self.values else nan

    @property
    def deviation(self) -> float:
        """The standard deviation over runs (population, as the paper's)."""
        return pstdev(self.values) if self.values else nan

    def text(self, plus_minus: str = "±") -> str:
        """`mean ± deviation`, the mean alone if there is one run, a dash if there is none."""
        if not self.values:
            return "–"
        mean = f"{self.mean:.3f}"
        return mean if len(self.values) == 1 else f"{mean} {plus_minus} {self.deviation:.3f}"


@dataclass(frozen=True)
class Grid:
    """A table before it is drawn."""

    corner: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: dict[tuple[str, str], Cell]

    def cell(self, row: str, column: str) -> Cell:
        """A cell, empty if nothing was run there."""
        return self.cells.get((row, column), Cell(()))


def read_results(folder: Path) -> list[Result]:
    """Every finished run below a folder, or the run that the folder is."""
    found = sorted(folder.rglob("summary.json")) if folder.is_dir() else []
    if not found:
        raise LidflError(f"there are no finished runs in {folder}")
    directories = [RunDirectory(path.parent) for path in found]
    return [(directory.experiment(), directory.summary()) for directory in directories]


def tabulate(results: Iterable[Result], rows: str, columns: str, value: str = "test_accuracy") -> Grid:
    """Group runs by two settings; `method` includes the aggregator."""
    grouped: dict[tuple[str, str], list[float]] = {}
    for experiment, summary in results:
        key = setting(experiment, rows), setting(experiment, columns)
        if value not in summary:
            raise LidflError(f"a summary has no '{value}'; choose from {', '.join(map(str, summary))}")
        grouped.setdefault(key, []).append(inf if summary[value] is None else summary[value])
    cells = {key: Cell(tuple(values)) for key, values in grouped.items()}
    return Grid(rows, _seen(row for row, _ in cells), _seen(column for _, column in cells), cells)


def setting(experiment: Experiment, name: str) -> str:
    """A setting as a table shows it; several, joined by a space, are shown so."""
    if " " in name:
        return " ".join(setting(experiment, part) for part in name.split())
    if name == "method":
        return experiment.method_label
    settings = asdict(experiment)
    if name not in settings:
        raise LidflError(f"unknown setting '{name}'; choose from {', '.join(settings)}")
    return str(settings[name])


def distinct(experiments: Iterable[Experiment], name: str) -> tuple[str, ...]:
    """Each value of a setting once, in the order of the experiments."""
    return _seen(setting(experiment, name) for experiment in experiments)


def _seen(names: Iterable[str]) -> tuple[str, ...]:
    """Each name once, in the order of first sight."""
    return tuple(dict.fromkeys(names))


def as_rich(grid: Grid) -> Table:
    """A table for the terminal."""
    table = Table(grid.corner, *grid.columns)
    for row in _texts(grid):
        table.add_row(*row)
    return table


def as_markdown(grid: Grid) -> str:
    """A table for a README."""
    return markdown([grid.corner, *grid.columns], _texts(grid), align="---:")


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]], align: str = "---") -> str:
    """Lines of text as a table; all columns but the first are aligned as asked."""
    lines = [header, ["---"] + [align] * (len(header) - 1), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def as_latex(grid: Grid) -> str:
    """A table for a paper, in the booktabs style."""
    head, *rows = [[grid.corner, *grid.columns], *_texts(grid, r"$\pm$")]
    head_line, *lines = [" & ".join(map(_latex, row)) + r" \\" for row in (head, *rows)]
    columns = "l" + "c" * len(grid.columns)
    top = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head_line, r"\midrule"]
    return "\n".join([*top, *lines, r"\bottomrule", r"\end{tabular}", ""])


def as_csv(grid: Grid) -> str:
    """One line a cell: row, column, mean, deviation, runs."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([grid.corner, "column", "mean", "std", "runs"])
    for row in grid.rows:
        for column in grid.columns:
            cell = grid.cell(row, column)
            writer.writerow([row, column, cell.mean, cell.deviation, len(cell.values)])
    return out.getvalue()


def _texts(grid: Grid, plus_minus: str = "±") -> list[list[str]]:
    return [[row, *(grid.cell(row, column).text(plus_minus) for column in grid.columns)] for row in grid.rows]


def _latex(text: str) -> str:
    return text.replace("_", r"\_").replace("%", r"\%").replace("–", "--")
