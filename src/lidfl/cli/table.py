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
    value: str = "deployed_accuracy"
    """What to show, from the runs' summaries: what honest clients deploy, with the paper's test_accuracy beside it,
    or another number there, such as deployed_worst."""
    against: str | None = None
    """The method, or the row, that others are compared with, seed by seed (default: oracle if it is there; none:
    nothing)."""
    interval: Literal["t", "bootstrap"] = "t"
    """How sure a difference is: by Student's t, or by the bootstrap."""
    costs: bool = False
    """Also show what a run costs: gradient steps, MB, votes and seconds."""
    format: Literal["terminal", "csv", "markdown", "latex"] = "terminal"
    """How to write it."""
    json: bool = False
    """Write it for programs: every cell with the values of its seeds."""

    def __call__(self) -> None:
        """Print the table."""
        from lidfl.studies import formats, tables
        from lidfl.studies.pairing import usual_reference

        results = tables.read_results(self.sweep)
        rows = self.rows or tables.rows_that_tell_apart(results, self.columns)
        against = None if self.against == "none" else self.against or usual_reference(results)
        grid = tables.tabulate(results, rows, self.columns, self.value, against, self.interval)
        if self.json:
            write_json(formats.as_dict(grid, self.columns))
            return
        told = formats.notes(grid, costs=self.costs)
        match self.format:
            case "terminal":
                console = Console()
                console.print(formats.as_rich(grid, costs=self.costs))
                console.print("\n".join(told), highlight=False, markup=False)
            case "csv":
                sys.stdout.write(formats.as_csv(grid, costs=self.costs))
            case "markdown":
                sys.stdout.write(f"{formats.as_markdown(grid, costs=self.costs)}\n{'; '.join(told)}.\n")
            case "latex":
                sys.stdout.write("".join(f"% {line}\n" for line in told) + formats.as_latex(grid, costs=self.costs))
