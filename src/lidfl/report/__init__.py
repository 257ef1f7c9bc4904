"""`lidfl report`: a run or a sweep as one page that opens anywhere, and as figures for a paper."""

from collections.abc import Sequence
from pathlib import Path

from lidfl.checkpoint import write_atomically
from lidfl.errors import LidflError
from lidfl.report.captions import count
from lidfl.report.page import FORMATS, Page, render, write_figures
from lidfl.report.read import Played, RunRecords, read_folder, read_store, unfinished
from lidfl.report.story import run_page, sweep_page

FEW_RUNS = 4
"""Up to how many runs a sweep's page also shows their lineage."""


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
    page = build(sources)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(place, render(page).encode())
        return [place, *(write_figures(page.figures, figures, formats) if figures else [])]
    except OSError as error:
        raise LidflError(
            f"cannot write to {error.filename or place}: {error.strerror}; set --out or --figures"
        ) from None


def check_formats(formats: Sequence[str]) -> None:
    """Refuse a format that figures cannot be written in."""
    for form in formats:
        if form not in FORMATS:
            raise LidflError(f"unknown figure format '{form}'; choose from {', '.join(FORMATS)}")


def check_sources(sources: Sequence[Path]) -> None:
    """Refuse what is not there."""
    if not sources:
        raise LidflError("name a run directory, a folder of runs or a results file")
    for source in sources:
        if not source.exists():
            raise LidflError(f"there is no {source}; name a run directory, a folder of runs or a results file")


def default_place(sources: Sequence[Path]) -> Path:
    """Where the page goes unless the user says: into the folder, or beside the file."""
    if len(sources) > 1:
        raise LidflError("a report of several places needs a name; set --out")
    return sources[0] / "report.html" if sources[0].is_dir() else sources[0].with_suffix(".html")


def build(sources: Sequence[Path]) -> Page:
    """The page of one run, or of many."""
    if len(sources) == 1 and (sources[0] / "experiment.toml").exists():
        return run_page(RunRecords.read(sources[0]))
    runs = [run for source in sources for run in read(source)]
    waiting = sum(unfinished(source) for source in sources if source.is_dir())
    notices = [f"{count(waiting, 'run')} without a result yet: left out."] if waiting else []
    title = sources[0].resolve().stem if len(sources) == 1 else "Runs side by side"
    return sweep_page(title, runs, notices=notices, traced=few(runs))


def read(source: Path) -> list[Played]:
    """The finished runs of a folder or a results file."""
    return read_folder(source) if source.is_dir() else read_store(source)


def few(runs: Sequence[Played]) -> list[RunRecords]:
    """Of a handful of runs those that keep a list, for their lineage, if their directories are there."""
    places = [Path(run.experiment.out) for run in runs if run.experiment.keeps_list]
    found = [place for place in places if (place / "rounds.jsonl").exists()]
    return [RunRecords.read(place) for place in found] if len(runs) <= FEW_RUNS else []
