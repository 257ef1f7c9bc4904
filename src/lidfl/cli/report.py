"""`lidfl report`: runs as a page."""

from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console


@dataclass
class Report:
    """Write a run or a sweep as one HTML page that opens anywhere, and as figures for a paper."""

    sources: tyro.conf.Positional[tuple[Path, ...]]
    """A run directory, a folder of runs, or a results file; several are shown together."""
    out: Path | None = None
    """The page (default: report.html in the folder)."""
    figures: Path | None = None
    """A folder for the figures as files (default: none are written)."""
    formats: tuple[str, ...] = ("svg", "pdf", "png")
    """How figures are written."""

    def __call__(self) -> None:
        """Write the page and say where it is."""
        from lidfl.report import write_report

        page, *drawn = write_report(self.sources, out=self.out, figures=self.figures, formats=self.formats)
        more = f", {len(drawn)} figures in {self.figures}" if drawn else ""
        Console().print(f"report: {page}{more}", highlight=False, soft_wrap=True)
