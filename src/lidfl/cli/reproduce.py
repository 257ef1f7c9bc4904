"""`lidfl reproduce`: the paper's tables again."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

import tyro
from rich.console import Console

from lidfl.cli.display import saying_how_to_go_on, watch
from lidfl.cli.output import write_json
from lidfl.cli.sweep import check_several
from lidfl.errors import LidflError


@dataclass
class Reproduce:
    """Run one of the paper's tables and print ours beside the paper's, cell by cell."""

    name: tyro.conf.Positional[str]
    """Which one, such as femnist-lr-0.6; `all` for all; `list` shows them."""
    scale: float = 1.0
    """How many of the paper's rounds to play: 0.2 is a fifth."""
    seeds: int | None = None
    """How many of the paper's five seeds to use (default: all)."""
    groups: tuple[str, ...] = ()
    """Only these groups of the experiment, such as lidfl."""
    columns: tuple[str, ...] = ()
    """Only these columns of the table, such as lie."""
    out: Path | None = None
    """Where the run directories go (default: runs/<name>)."""
    workers: int = os.cpu_count() or 1
    """How many runs at a time."""
    results: Path = Path("results")
    """Where results are kept once runs are finished; what is there is not run again."""
    show_only: bool = False
    """Run nothing, compare what is there."""
    page: Path | None = None
    """Also write all that is kept, of every experiment, as a page of Markdown."""
    json: bool = False
    """Write each comparison for programs, and how it gets on to standard error."""

    def __call__(self) -> None:
        """Run what is not finished, then compare."""
        from lidfl.studies import page, paper

        check_several("workers", self.workers)
        console = Console(stderr=self.json)
        if self.name == "list":
            write_json(paper.names()) if self.json else console.print("\n".join(paper.names()), highlight=False)
            return
        for name in paper.names() if self.name == "all" else [self.name]:
            self.one(name, console)
        if self.page:
            self.page.write_text(page.page(self.results, self.page.parent), encoding="utf-8")

    def one(self, name: str, console: Console) -> None:
        """One experiment."""
        from lidfl.studies.formats import NAMES
        from lidfl.studies.paper import compare, compared_as_dict, compared_as_rich, planned
        from lidfl.studies.store import Shelf

        sweep = planned(
            name, scale=self.scale, seeds=self.seeds, groups=self.groups, columns=self.columns, out=self.out
        )
        shelf = Shelf(self.results)
        missing = replace(sweep, runs=tuple(shelf.missing(sweep)))
        failed = []
        if not self.show_only and missing.waiting:
            from lidfl.studies.running import run_all

            with saying_how_to_go_on(console):
                failed = watch(len(missing.waiting), run_all(missing, self.workers), console)
        shelf.keep(sweep)
        grid, cells = compare(sweep, shelf.results(sweep))
        if self.json:
            write_json(compared_as_dict(name, cells))
        else:
            console.print(compared_as_rich(grid, cells))
            what = NAMES.get(sweep.value, sweep.value.replace("_", " "))
            console.print(f"{what}: ours ± deviation over seeds, (the paper's), difference", highlight=False)
        if failed:
            raise LidflError(f"{len(failed)} runs failed; the next call tries them again")
