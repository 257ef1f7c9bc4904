"""Tables of results: mean ± standard deviation over seeds, and how far that is from a reference."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from math import inf, nan
from pathlib import Path
from statistics import fmean, stdev

from lidfl.errors import LidflError
from lidfl.runs.directory import Summary, finished_runs
from lidfl.settings.experiment import Experiment
from lidfl.studies.pairing import references_of
from lidfl.studies.recalls import Recalls, any_unequal, recalls_of
from lidfl.studies.spending import Spending
from lidfl.studies.statistics import Difference, Interval, paired_difference
from lidfl.studies.sweep import DEPLOYED, NOT_CONTENT, PAPERS, Result

NOT_VARYING = NOT_CONTENT | {"seed", "eval_every"}
"""Settings in which the runs of one cell may differ: the seed, and what does not change a result."""


@dataclass(frozen=True)
class Cell:
    """One cell: what runs found that differ in nothing but their seeds."""

    values: tuple[float, ...]
    papers: tuple[float, ...] = ()
    """The same runs by the paper's measure, where the values are what clients deploy."""
    difference: Difference | None = None
    """How far it is from the reference."""
    spending: Spending = field(default_factory=Spending)
    """What its runs cost."""

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
    value: str = DEPLOYED
    """What of a summary it shows."""
    against: str | None = None
    """What cells are compared with."""
    interval: Interval = "t"
    """How sure that is."""
    spending: Mapping[str, Spending] = field(default_factory=dict)
    """What the runs of each row cost."""
    recalls: Mapping[str, Recalls] = field(default_factory=dict)
    """What accuracy hides, by row; empty where classes are equal enough."""

    def cell(self, row: str, column: str) -> Cell:
        """A cell, empty if nothing was run there."""
        return self.cells.get((row, column), Cell(()))

    def filled(self) -> Iterator[tuple[str, str, Cell]]:
        """Row, column and content of every cell in which something was run."""
        for row in self.rows:
            for column in self.columns:
                if self.cell(row, column).values:
                    yield row, column, self.cell(row, column)

    @property
    def seeds(self) -> list[int]:
        """How many seeds cells have that have any, each number once, in ascending order."""
        return sorted({len(cell.values) for cell in self.cells.values() if cell.values})


def read_results(folder: Path) -> list[Result]:
    """Every finished run below a folder, or the run that the folder is."""
    found = finished_runs(folder) if folder.is_dir() else []
    if not found:
        raise LidflError(f"there are no finished runs in {folder}")
    return [(directory.experiment(), directory.summary()) for directory in found]


def tabulate(
    results: Iterable[Result],
    rows: str,
    columns: str,
    value: str = DEPLOYED,
    against: str | None = None,
    interval: Interval = "t",
) -> Grid:
    """Group runs by two settings, or by several joined by a space; `method` includes the aggregator.

    Runs of one cell may differ in their seeds alone: whatever else varies has to be a row or a column. `against`
    names a method, or a row, from which every other cell's difference is told, seed by seed.
    """
    results = list(results)
    references = _references(results, rows, against) if against else []
    by_place: dict[tuple[str, str], list[Result]] = {}
    by_row: dict[str, list[Result]] = {}
    for experiment, summary in results:
        row, column = setting(experiment, rows), setting(experiment, columns)
        by_place.setdefault((row, column), []).append((experiment, summary))
        by_row.setdefault(row, []).append((experiment, summary))
    for place, found in by_place.items():
        _refuse_pooling([experiment for experiment, _ in found], rows, place)
    cells = {place: _cell(found, value, references, interval) for place, found in by_place.items()}
    names = _seen(row for row, _ in cells), _seen(column for _, column in cells)
    spending = {row: Spending.of(found) for row, found in by_row.items()}
    recalls = {row: recalls_of(found) for row, found in by_row.items()} if any_unequal(results) else {}
    return Grid(rows, *names, cells, value, against, interval, spending, recalls)


def _cell(found: Sequence[Result], value: str, references: Sequence[Result], interval: Interval) -> Cell:
    """What runs found that differ in nothing but their seeds, and how far that is from the reference."""
    papers = [summary[PAPERS] for _, summary in found if value == DEPLOYED and PAPERS in summary]
    difference = None
    if found[0] not in references:
        by_seed, reference = (_by_seed(runs, value) for runs in (found, references_of(found[0][0], references)))
        difference = paired_difference(by_seed, reference, interval)
    values = tuple(_number(summary, value) for _, summary in found)
    return Cell(values, tuple(papers), difference, Spending.of(found))


def _references(results: Sequence[Result], rows: str, against: str) -> list[Result]:
    """The runs that others are compared with: those of a row, or of a method."""
    names = [(setting(e, rows), e.method_label, e.method) for e, _ in results]
    for kind in zip(*names, strict=True):
        if against in kind:
            return [result for result, name in zip(results, kind, strict=True) if name == against]
    methods = ", ".join(_seen(label for _, label, _ in names))
    raise LidflError(f"no run of '{against}' is there to compare with; choose from {methods}")


def _by_seed(results: Iterable[Result], value: str) -> dict[int, float]:
    return {experiment.seed: _number(summary, value) for experiment, summary in results}


def _number(summary: Summary, value: str) -> float:
    """What a summary says; what is not finite stands there as nothing."""
    numbers = [name for name, found in summary.items() if found is None or type(found) in (int, float)]
    if value not in numbers:
        fault = f"'{value}' is no number" if value in summary else f"a summary has no '{value}'"
        raise LidflError(f"{fault}; choose from {', '.join(map(str, numbers))}")
    return inf if summary[value] is None else float(summary[value])


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


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]], align: str = "---") -> str:
    """Lines of text as a table; all columns but the first are aligned as asked."""
    lines = [header, ["---"] + [align] * (len(header) - 1), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
