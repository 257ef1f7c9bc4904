"""Tables as people take them: for the terminal, a README, a paper and a spreadsheet."""

import csv
import io
from dataclasses import asdict, astuple
from math import isnan
from statistics import fmean
from typing import Any

from rich.table import Table

from lidfl.studies import recalls
from lidfl.studies.spending import ABOUT, COLUMNS, Spending
from lidfl.studies.statistics import MARK
from lidfl.studies.sweep import DEPLOYED, PAPERS
from lidfl.studies.tables import Cell, Grid, markdown

NAMES = {
    DEPLOYED: "test accuracy of what honest clients deploy",
    PAPERS: "test accuracy of the best model, the paper's measure",
    "deployed_worst": "test accuracy of what the worst honest client deploys",
    "deployed_worst_decile": "test accuracy of what the worst tenth of honest clients deploys",
    "deployed_deviation": "deviation over honest clients of the test accuracy of what they deploy",
}
"""What the values of a summary are, in words."""
INTERVALS = {"t": "paired t", "bootstrap": "paired bootstrap"}


def as_rich(grid: Grid, *, costs: bool = False) -> Table:
    """A table for the terminal."""
    table = Table(*header(grid, costs=costs), show_lines=grid.against is not None)
    for column in table.columns[1 + len(grid.columns) :]:
        column.justify = "right"
    for row in _texts(grid, costs, "\n"):
        table.add_row(*row)
    return table


def as_markdown(grid: Grid, *, costs: bool = False) -> str:
    """A table for a README."""
    return markdown(header(grid, costs=costs), _texts(grid, costs, "<br>"), align="---:")


def as_latex(grid: Grid, *, costs: bool = False) -> str:
    """A table for a paper, in the booktabs style."""
    head_line, *lines = [
        " & ".join(map(_latex, row)) + r" \\" for row in (header(grid, costs=costs), *_texts(grid, costs, " "))
    ]
    columns = "l" + "c" * len(grid.columns) + "r" * (len(header(grid, costs=costs)) - 1 - len(grid.columns))
    top = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head_line, r"\midrule"]
    return "\n".join([*top, *lines, r"\bottomrule", r"\end{tabular}", ""])


def as_dict(grid: Grid, columns: str) -> dict[str, Any]:
    """For programs: what rows and columns stand for, and every cell with the values of its seeds."""
    cells = [
        dict(row=row, column=column, mean=cell.mean, deviation=cell.deviation, values=cell.values)
        | ({"difference": asdict(cell.difference)} if cell.difference else {})
        for row, column, cell in grid.filled()
    ]
    return dict(rows=grid.corner, columns=columns, value=grid.value, against=grid.against, cells=cells)


def as_csv(grid: Grid, *, costs: bool = False) -> str:
    """One line a cell: row, column, mean, deviation, runs and more; what there is none of is left empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    more = ["difference", "low", "high", "pairs"] if grid.against else []
    more += ["gradient_steps", "bytes", "ballots", "seconds"] if costs else []
    writer.writerow(
        [grid.corner, "column", "mean", "std", "runs", *([PAPERS] if _shows_papers(grid) else []), *more]
    )
    for row in grid.rows:
        for column in grid.columns:
            cell = grid.cell(row, column)
            mean = None if isnan(cell.mean) else cell.mean
            writer.writerow([row, column, mean, cell.deviation, len(cell.values), *_more(grid, cell, costs)])
    return out.getvalue()


def _more(grid: Grid, cell: Cell, costs: bool) -> list[float | None]:
    """What a line of CSV says beyond mean and deviation."""
    papers = [fmean(cell.papers) if cell.papers else None] if _shows_papers(grid) else []
    gap = cell.difference
    compared = [gap.mean, gap.low, gap.high, gap.seeds] if gap else [None] * 4
    return [*papers, *(compared if grid.against else []), *(astuple(cell.spending) if costs else ())]


def notes(grid: Grid, *, costs: bool = False) -> list[str]:
    """What a reader has to know of a table's numbers, a sentence each."""
    seeds = f"{grid.seeds[0]} seeds" if len(grid.seeds) == 1 else "seeds, n of them"
    what = NAMES.get(grid.value, grid.value.replace("_", " "))
    told = [f"{what}: mean ± sample deviation over {seeds}" if grid.seeds != [1] else f"{what}: one seed"]
    if _shows_papers(grid):
        told.append("in brackets: test accuracy of the best model of the list, the paper's measure")
    if grid.against:
        told.append(
            f"then: difference from {grid.against} with the same seeds, its 95 % interval "
            f"({INTERVALS[grid.interval]}), and {MARK} where that excludes 0"
        )
    return told + ([recalls.ABOUT] if grid.recalls else []) + ([ABOUT] if costs else [])


def cell_lines(grid: Grid, cell: Cell) -> list[str]:
    """A cell as a reader sees it: the value, and below it how far that is from the reference."""
    if not cell.values:
        return ["–"]
    papers = f" ({fmean(cell.papers):.3f})" if cell.papers else ""
    number = f" n={len(cell.values)}" if len(grid.seeds) > 1 else ""
    return [f"{cell.text()}{papers}{number}", *([cell.difference.text()] if cell.difference else [])]


def _shows_papers(grid: Grid) -> bool:
    return any(cell.papers for cell in grid.cells.values())


def header(grid: Grid, *, costs: bool) -> list[str]:
    """What stands above the columns."""
    return [grid.corner, *grid.columns, *(recalls.COLUMNS if grid.recalls else ()), *(COLUMNS if costs else ())]


def beside(grid: Grid, row: str, *, costs: bool) -> list[str]:
    """What stands beside the cells of a row: what accuracy hides where classes are unequal, and costs."""
    hidden = grid.recalls[row].texts() if grid.recalls else []
    return [*hidden, *(grid.spending.get(row, Spending()).texts() if costs else ())]


def _texts(grid: Grid, costs: bool, between: str) -> list[list[str]]:
    return [
        [
            row,
            *(between.join(cell_lines(grid, grid.cell(row, column))) for column in grid.columns),
            *beside(grid, row, costs=costs),
        ]
        for row in grid.rows
    ]


def _latex(text: str) -> str:
    for sign, written in LATEX.items():
        text = text.replace(sign, written)
    return text


LATEX = {
    "_": r"\_",
    "%": r"\%",
    "&": r"\&",
    "#": r"\#",
    "|": "$|$",
    "–": "--",
    "±": r"$\pm$",
    "−": "$-$",
    MARK: "$^{*}$",
}
"""Signs that LaTeX writes in its own way."""
