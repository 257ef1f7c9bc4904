"""The page that sets all our results beside the paper's: made from the committed results alone."""

import csv
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from lidfl.settings.experiment import Experiment
from lidfl.studies.paper import Compared, compare, folder, names_of_the_paper, planned
from lidfl.studies.store import Shelf
from lidfl.studies.sweep import PAPERS, Result, Sweep
from lidfl.studies.tables import Grid, distinct, markdown, setting

NOTABLE = 0.05
"""A difference from the paper that is larger than this is explained."""

HEAD = """\
# The paper's tables, run again

Every cell: ours (mean ± standard deviation over seeds), the paper's in brackets, the difference. Accuracies are by
the paper's measure, the test accuracy of the best model of the list; what honest clients deploy is in the files.
Made by

    lidfl reproduce all --show-only --page docs/reproduction.md

from the files in `results/`, which hold each run's settings, summary, accuracy over rounds and the commit that
it was run with. `lidfl reproduce NAME` runs what is missing there. A dash is a cell that has not been run yet.
A number in **bold** differs from the paper's by more than 0.05; below its table stands why. The figures are made by

    lidfl report results/NAME.json --figures docs/figures/NAME --formats svg
"""
ABOUT_ORDER = """\
The last column counts pairs of cells: two methods under one attack, whose accuracies differ by more than 0.05 in
the paper, and in how many of these pairs the better one is the same here. Where methods were run for unequal
numbers of rounds, the shorter may stand lower for that alone."""

FIGURES = "figures"
"""The folder beside the page that has a folder of figures for each experiment."""
CURVES = "curves.svg"


@dataclass(frozen=True)
class Chapter:
    """One experiment of the paper with what we have of it."""

    sweep: Sweep
    found: Sequence[Result]
    grid: Grid
    cells: Sequence[Compared]

    @property
    def asked(self) -> int:
        """The paper's rounds."""
        return max(experiment.rounds for experiment in self.sweep.runs)


def chapter(name: str, shelf: Shelf) -> Chapter:
    """What is kept of an experiment: at the paper's rounds, or else at the largest scale that was run."""
    sweep = planned(name)
    found = longest_of_each_cell(shelf.longest_results(name), sweep)
    grid, cells = compare(sweep, found)
    return Chapter(sweep, found, grid, cells)


def longest_of_each_cell(found: Sequence[Result], sweep: Sweep) -> list[Result]:
    """Of each cell the runs with the most rounds: seeds that were run for less would not be comparable."""

    def place(experiment: Experiment) -> tuple[str, str]:
        return setting(experiment, sweep.rows), setting(experiment, sweep.columns)

    most: dict[tuple[str, str], int] = {}
    for experiment, _ in found:
        most[place(experiment)] = max(experiment.rounds, most.get(place(experiment), 0))
    return [(e, summary) for e, summary in found if e.rounds == most[place(e)]]


def page(results: Path, beside: Path | None = None) -> str:
    """The whole page as Markdown, with the figures that are in the folder of the page."""
    reasons = read_reasons()
    shelf = Shelf(results)
    chapters = [chapter(name, shelf) for name in names_of_the_paper()]
    sections = (_section(one, reasons) + _figure(one.sweep.name, beside) for one in chapters)
    return "\n".join([HEAD, _overview(chapters), *sections])


def _overview(chapters: Iterable[Chapter]) -> str:
    """A line an experiment: how much of it was run, how near ours is, and whether methods rank as in the paper."""
    header = ["experiment", "cells run", "rounds", "seeds", f"within {NOTABLE}", "in the paper's order"]
    return f"## In short\n\n{ABOUT_ORDER}\n\n{markdown(header, map(_in_short, chapters))}"


def _in_short(chapter: Chapter) -> list[str]:
    rounds = [e.rounds for e, _ in chapter.found]
    seeds = [len(cell.ours.values) for cell in chapter.cells if cell.ours.values]
    compared = [cell for cell in chapter.cells if cell.difference is not None]
    ordered = in_order(chapter.cells)
    return [
        f"[{chapter.sweep.name}](#{chapter.sweep.name.replace('.', '')})",
        _of(len(seeds), len(chapter.cells)),
        f"{_span(rounds)} of {chapter.asked:,}" if rounds else "–",
        _span(seeds) if seeds else "–",
        _of(sum(not notable(cell) for cell in compared), len(compared)),
        _of(sum(ordered), len(ordered)),
    ]


def in_order(cells: Iterable[Compared]) -> list[bool]:
    """Of each two cells of a column that the paper clearly sets apart: whether ours stand in the same order."""
    by_column: dict[str, list[tuple[float, float]]] = {}
    for cell in cells:
        if cell.paper is not None and cell.ours.values:
            by_column.setdefault(cell.column, []).append((cell.paper, cell.ours.mean))
    pairs = [pair for column in by_column.values() for pair in combinations(column, 2)]
    apart = [(one, other) for one, other in pairs if abs(one[0] - other[0]) > NOTABLE]
    return [(one[0] < other[0]) == (one[1] < other[1]) for one, other in apart]


def notable(cell: Compared) -> bool:
    """Whether a cell differs from the paper's by so much that it is explained."""
    return cell.difference is not None and abs(cell.difference) > NOTABLE


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole}" if whole else "–"


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _figure(name: str, beside: Path | None) -> str:
    if beside is None or not (beside / FIGURES / name / CURVES).exists():
        return ""
    return f"\n![Accuracy over rounds, {name}]({FIGURES}/{name}/{CURVES})\n"


def read_reasons() -> list[dict[str, str]]:
    """Why cells differ: experiment, row and column, each of which may be `*`, and a sentence."""
    with (folder() / "differences.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def reason(name: str, cell: Compared, reasons: Iterable[dict[str, str]]) -> str | None:
    """The first sentence in the file that fits a cell."""
    place = {"experiment": name, "row": cell.row, "column": cell.column}
    fitting = (r["why"] for r in reasons if all(r[key] in ("*", value) for key, value in place.items()))
    return next(fitting, None)


def _section(chapter: Chapter, reasons: Sequence[dict[str, str]]) -> str:
    if not chapter.found:
        return f"## {chapter.sweep.name}\n\nNot run yet: {len(chapter.sweep.runs)} runs.\n"
    texts = {(cell.row, cell.column): _text(cell) for cell in chapter.cells}
    grid = chapter.grid
    rows = [[row, *(texts[row, column] for column in grid.columns)] for row in grid.rows]
    table = markdown([grid.corner, *grid.columns], rows)
    about = [*_what_was_run(chapter), *_chosen(chapter)]
    return "\n".join([f"## {chapter.sweep.name}", "", *about, "", table, *_notes(chapter, reasons)])


def _what_was_run(chapter: Chapter) -> list[str]:
    """A line a method: its rounds, seeds and commits."""
    parts, missing = [], []
    for method in distinct(chapter.sweep.runs, "method"):
        found = [(e, summary) for e, summary in chapter.found if e.method_label == method]
        if not found:
            missing.append(method)
            continue
        places = [(setting(e, chapter.sweep.columns), e) for e, _ in found]
        rounds = _by_column((column, e.rounds) for column, e in places)
        seeds = _by_column((column, e.seed) for column, e in places)
        commits = ", ".join(sorted({str(summary.get("commit")) for _, summary in found}))
        diverged = sum(summary.get("diverged_at") is not None for _, summary in found)
        ended = f", {diverged} of {len(found)} runs diverged" if diverged else ""
        parts.append(f"- {method}: {_rounds(rounds, chapter.asked)}, seeds {seeds}, commit {commits}{ended}")
    return parts + ([f"- not run yet: {', '.join(missing)}"] if missing else [])


def _chosen(chapter: Chapter) -> list[str]:
    """For a grid of settings, which compares a loss: the lowest, and that of the settings of all other tables."""
    sweep = chapter.sweep
    if sweep.value == PAPERS:
        return []
    run = {(cell.row, cell.column): cell.ours for cell in chapter.cells if cell.ours.values}
    lowest = min(run, key=lambda place: run[place].mean)
    usual = Experiment(dataset=sweep.runs[0].dataset, model=sweep.runs[0].model)
    place = setting(usual, sweep.rows), setting(usual, sweep.columns)
    told = f"; what the paper chose, {' / '.join(place)}, has {run[place].mean:.3f}" if place in run else ""
    return [
        f"- each number is the {sweep.value.replace('_', ' ')} at {sweep.rows} / {sweep.columns}",
        f"- the lowest is {run[lowest].mean:.3f}, at {' / '.join(lowest)}{told}",
    ]


def _by_column(run: Iterable[tuple[str, int]]) -> str:
    """The numbers that most columns have, and the columns with others."""
    by_column: dict[str, set[int]] = {}
    for column, number in run:
        by_column.setdefault(column, set()).add(number)
    shown = {column: ", ".join(map(str, sorted(numbers))) for column, numbers in by_column.items()}
    common, _ = Counter(shown.values()).most_common(1)[0]
    others = [f"{column}: {numbers}" for column, numbers in shown.items() if numbers != common]
    return f"{common} ({'; '.join(others)})" if others else common


def _rounds(shown: str, asked: int) -> str:
    """How long runs were, and plainly where that is less than the paper's."""
    return f"{asked} rounds" if shown == str(asked) else f"**{shown}** of the paper's {asked} rounds"


def _text(cell: Compared) -> str:
    if cell.paper is None:
        return cell.ours.text()
    if cell.difference is None:
        return f"{cell.ours.text()} ({cell.paper:.2f})"
    difference = f"{cell.difference:+.2f}"
    shown = f"**{difference}**" if notable(cell) else difference
    return f"{cell.ours.text()} ({cell.paper:.2f}) {shown}"


def _notes(chapter: Chapter, reasons: Sequence[dict[str, str]]) -> list[str]:
    """Why the bold cells differ, each reason once with the cells that it explains."""
    explained: dict[str, list[str]] = {}
    for cell in chapter.cells:
        if notable(cell):
            why = reason(chapter.sweep.name, cell, reasons) or "Not explained yet."
            explained.setdefault(why, []).append(f"{cell.row}/{cell.column}")
    return [f"- {', '.join(places)}: {why}" for why, places in explained.items()] + [""]
