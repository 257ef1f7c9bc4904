"""`lidfl table`: results of a sweep as a table."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro
from rich.console import Console

from lidfl.cli.output import write_json


@dataclass
class TableOfResults:
    """Mean ± standard deviation over seeds of a sweep's results."""

    sweep: tyro.conf.Positional[Path]
    """The folder of the sweep's runs."""
    rows: str | None = None
    """The settings that make the rows, several joined by a space (default: method, and whatever else varies)."""
    columns: str = "attack"
    """The settings that make the columns."""
    value: str = "test_accuracy"
    """What to show, from the runs' summaries."""
    format: Literal["terminal", "csv", "markdown", "latex"] = "terminal"
    """How to write it."""
    json: bool = False
    """Write it for programs: every cell with the values of its seeds."""

    def __call__(self) -> None:
        """Print the table."""
        from lidfl.studies import tables

        results = tables.read_results(self.sweep)
        rows = self.rows or tables.rows_that_tell_apart(results, self.columns)
        grid = tables.tabulate(results, rows, self.columns, self.value)
        if self.json:
            write_json(tables.as_dict(grid, self.columns, self.value))
        elif self.format == "terminal":
            Console().print(tables.as_rich(grid))
        else:
            written = {"csv": tables.as_csv, "markdown": tables.as_markdown, "latex": tables.as_latex}
            sys.stdout.write(written[self.format](grid))
