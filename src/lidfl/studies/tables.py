"""Tables of results: mean ± standard deviation over seeds, for the terminal and for papers."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from math import inf, isnan, nan
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from rich.table import Table

from lidfl.errors import LidflError
from lidfl.runs.directory import finished_runs
from lidfl.settings.experiment import Experiment
from lidfl.studies.sweep import NOT_CONTENT, Result

NOT_VARYING = NOT_CONTENT | {"seed", "eval_every"}
"""Settings in which the runs of one cell may differ: the seed, and what does not change a result."""


@dataclass(frozen=True)
class Cell:
    """One cell: what runs found that differ in nothing but their seeds."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean over seeds; not a number if there is none."""
        return fmean(self.values) if self.values else nan

    @property
    def deviation(self) -> float | None:
        """The sample's standard deviation, which divides by n − 1; one seed has none."""
        if len(self.values) < 2:
            return None
        return stdev(self.values) if inf not in self.values else nan

    def text(self, plus_minus: str = "±") -> str:
        """`mean ± deviation`, the mean alone if there is one seed, a dash if there is none."""
        if not self.values:
            return "–"
        mean = f"{self.mean:.3f}"
        return mean if self.deviation is None else f"{mean} {plus_minus} {self.deviation:.3f}"


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

    def filled(self) -> Iterator[tuple[str, str, Cell]]:
        """Row, column and content of every cell in which something was run."""
        for row in self.rows:
            for column in self.columns:
                if self.cell(row, column).values:
                    yield row, column, self.cell(row, column)


def read_results(folder: Path) -> list[Result]:
    """Every finished run below a folder, or the run that the folder is."""
    found = finished_runs(folder) if folder.is_dir() else []
    if not found:
        raise LidflError(f"there are no finished runs in {folder}")
    return [(directory.experiment(), directory.summary()) for directory in found]


def tabulate(results: Iterable[Result], rows: str, columns: str, value: str = "test_accuracy") -> Grid:
    """Group runs by two settings, or by several joined by a space; `method` includes the aggregator.

    Runs of one cell may differ in their seeds alone: whatever else varies has to be a row or a column.
    """
    grouped: dict[tuple[str, str], list[Result]] = {}
    for experiment, summary in results:
        if value not in summary:
            raise LidflError(f"a summary has no '{value}'; choose from {', '.join(map(str, summary))}")
        grouped.setdefault((setting(experiment, rows), setting(experiment, columns)), []).append(
            (experiment, summary)
        )
    for place, found in grouped.items():
        _refuse_pooling([experiment for experiment, _ in found], rows, place)
    cells = {
        place: Cell(tuple(inf if summary[value] is None else summary[value] for _, summary in found))
        for place, found in grouped.items()
    }
    return Grid(rows, _seen(row for row, _ in cells), _seen(column for _, column in cells), cells)


def _refuse_pooling(experiments: Sequence[Experiment], rows: str, place: tuple[str, str]) -> None:
    """Refuse to take a mean over runs that differ in more than the seed."""
    varying = varying_settings(experiments)
    if varying:
        values = ", ".join(distinct(experiments, varying[0]))
        raise LidflError(
            f"the runs of {' × '.join(place)} differ in {varying[0]} ({values}), not only in their seeds; "
            f'make it a row, with rows="{rows} {varying[0]}", or a column'
        )


def varying_settings(experiments: Sequence[Experiment], but_for: Iterable[str] = ()) -> list[str]:
    """The settings that tell experiments apart, besides the seed and those that are named.

    What follows from a setting that comes before it, such as the list's length from the Byzantine fraction, is not
    named again.
    """
    chosen, known = list(but_for), []
    for name in (f.name for f in fields(Experiment) if f.name not in NOT_VARYING):
        by_others: dict[tuple[str, ...], set[object]] = {}
        for experiment in experiments:
            key = tuple(setting(experiment, other) for other in chosen)
            by_others.setdefault(key, set()).add(getattr(experiment, name))
        if name not in chosen and any(len(values) > 1 for values in by_others.values()):
            chosen.append(name)
            known.append(name)
    return known


def rows_that_tell_apart(results: Sequence[Result], columns: str) -> str:
    """Rows for a table whose columns are given: methods, and whatever else varies."""
    experiments = [experiment for experiment, _ in results]
    return " ".join(["method", *varying_settings(experiments, ["method", *columns.split()])])


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


def as_dict(grid: Grid, columns: str, value: str) -> dict[str, Any]:
    """For programs: what rows and columns stand for, and every cell with the values of its seeds."""
    cells = [
        dict(row=row, column=column, mean=cell.mean, deviation=cell.deviation, values=cell.values)
        for row, column, cell in grid.filled()
    ]
    return dict(rows=grid.corner, columns=columns, value=value, cells=cells)


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
    """One line a cell: row, column, mean, deviation, runs; what there is none of is left empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([grid.corner, "column", "mean", "std", "runs"])
    for row in grid.rows:
        for column in grid.columns:
            cell = grid.cell(row, column)
            mean = None if isnan(cell.mean) else cell.mean
            writer.writerow([row, column, mean, cell.deviation, len(cell.values)])
    return out.getvalue()


def _texts(grid: Grid, plus_minus: str = "±") -> list[list[str]]:
    return [[row, *(grid.cell(row, column).text(plus_minus) for column in grid.columns)] for row in grid.rows]


def _latex(text: str) -> str:
    return text.replace("_", r"\_").replace("%", r"\%").replace("–", "--")
