"""`lidfl report`: a run or a sweep as one page that opens anywhere, and as figures for a paper.

| module | what it holds |
|---|---|
| `read` | what a report is made from: the records of one run, or the results of many |
| `lineage` | the family tree of a run's models |
| `scenes` | a sweep in chapters, each with its table and its mean curves |
| `figures` | one file a figure: what is drawn, how, and the caption |
| `story` | what stands on a page |
| `page` | the page as HTML, and the figures as files |

Only `figures`, `story` and `page` load the libraries that draw.
"""

from collections.abc import Sequence
from pathlib import Path

from lidfl.errors import LidflError
from lidfl.runs.nearby import way_to_a_run

FORMATS = ("svg", "pdf", "png")
"""The files that a figure can be written to."""


def write_report(
    sources: Sequence[Path],
    *,
    out: Path | None = None,
    figures: Path | None = None,
    formats: Sequence[str] = FORMATS,
) -> list[Path]:
    """Write the report of a run, of a folder of runs, of a results file, or of several of these together.

    Returns what was written: the page, then the figures.
    """
    check_formats(formats)
    check_sources(sources)
    place = out or default_place(sources)
    # These take two seconds to load, and a mistyped name should be told at once.
    from lidfl.report.page import write_figures, write_page
    from lidfl.report.story import compose

    page = compose(sources)
    try:
        write_page(page, place)
        return [place, *(write_figures(page.figures, figures, formats) if figures else [])]
    except OSError as error:
        raise LidflError(
            f"cannot write to {error.filename or place}: {error.strerror}; set out=… or figures=…"
        ) from None


def check_formats(formats: Sequence[str]) -> None:
    """Refuse a format that figures cannot be written in."""
    for form in formats:
        if form not in FORMATS:
            raise LidflError(f"unknown figure format '{form}'; choose from {', '.join(FORMATS)}")


def check_sources(sources: Sequence[Path]) -> None:
    """Refuse a source that does not exist."""
    if not sources:
        raise LidflError("name a run directory, a folder of runs or a results file")
    for source in sources:
        if not source.exists():
            raise LidflError(
                f"there is no {source}; name a run directory, a folder of runs or a results file: "
                + way_to_a_run(source)
            )


def default_place(sources: Sequence[Path]) -> Path:
    """Where the page goes if the user does not say: into the folder, or beside the file."""
    if len(sources) > 1:
        raise LidflError("a report of several places needs a name; set out=…")
    return sources[0] / "report.html" if sources[0].is_dir() else sources[0].with_suffix(".html")
