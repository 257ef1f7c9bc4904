"""A sweep in chapters: the runs of a chapter share data set, model and Byzantine fraction."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import groupby

from lidfl.report.words import percent
from lidfl.settings.experiment import Experiment
from lidfl.studies.pairing import usual_reference
from lidfl.studies.store import Curve, Kept
from lidfl.studies.sweep import DEPLOYED, PAPERS
from lidfl.studies.tables import NOT_VARYING, Cell, Grid, setting, tabulate, varying_settings


@dataclass(frozen=True)
class Scene:
    """One chapter: its methods are rows, its attacks are columns."""

    runs: list[Kept]
    rows: str
    """The settings that tell its methods apart, as `lidfl.studies.tables` takes them."""
    columns: str
    """The settings that tell its attacks apart."""
    number: int | None = None
    """Which chapter it is; None if it is the only one."""

    @property
    def title(self) -> str:
        """What all its runs share."""
        first = self.runs[0].experiment
        return f"{first.dataset}-{first.model}, {percent(first.byzantine_fraction)} Byzantine"

    @property
    def suffix(self) -> str:
        """What the names of its figures end in, so that each chapter has its own."""
        return "" if self.number is None else f"-{self.number}"

    @property
    def where(self) -> str:
        """What the titles of its figures end in."""
        return "" if self.number is None else f" – {self.title}"

    @cached_property
    def rounds(self) -> int:
        """The most rounds of a run."""
        return max(run.experiment.rounds for run in self.runs)

    def method(self, run: Kept) -> str:
        """The row of a run."""
        return setting(run.experiment, self.rows)

    def attack(self, run: Kept) -> str:
        """The column of a run."""
        return setting(run.experiment, self.columns)

    @cached_property
    def methods(self) -> list[str]:
        """Its rows, those of LiD-FL first."""
        names = {self.method(run): run.experiment.keeps_list for run in self.runs}
        return sorted(names, key=lambda name: (not names[name], name))

    @cached_property
    def contenders(self) -> list[str]:
        """Its rows but for those that nobody can run, such as the oracle, if there are others."""
        ideal = {self.method(run) for run in self.runs if run.experiment.plays.ideal}
        return [method for method in self.methods if method not in ideal] or self.methods

    @cached_property
    def attacks(self) -> list[str]:
        """Its columns."""
        return sorted({self.attack(run) for run in self.runs})

    @cached_property
    def grid(self) -> Grid:
        """Its table of what honest clients deploy, against the oracle if that is there."""
        order = {name: place for place, name in enumerate(self.methods)}
        runs = sorted(self.runs, key=lambda run: (self.attack(run), order[self.method(run)]))
        results = [run.result for run in runs]
        grid = tabulate(results, self.rows, self.columns, against=usual_reference(results))
        return replace(grid, rows=tuple(self.methods), columns=tuple(self.attacks))

    @cached_property
    def deployed(self) -> bool:
        """Whether its curves are of what honest clients deploy; earlier versions kept only the best model's."""
        return all(run.deployed for run in self.runs)

    @cached_property
    def _by_cell(self) -> dict[tuple[str, str], list[Kept]]:
        found: dict[tuple[str, str], list[Kept]] = {}
        for run in self.runs:
            found.setdefault((self.method(run), self.attack(run)), []).append(run)
        return found

    def of(self, method: str, attack: str) -> list[Kept]:
        """The runs of one cell, which differ in their seeds alone."""
        return self._by_cell.get((method, attack), [])

    def best_method(self, attack: str) -> str:
        """The method of the highest mean accuracy under an attack."""
        cells = {method: self.grid.cell(method, attack) for method in self.methods}
        return max((method for method in cells if cells[method].values), key=lambda method: cells[method].mean)

    def worst_case(self, method: str) -> tuple[float, str]:
        """A method's lowest mean accuracy, and the attack that brings it there."""
        cells = {attack: self.grid.cell(method, attack) for attack in self.attacks}
        return min((cell.mean, attack) for attack, cell in cells.items() if cell.values)


def scenes(runs: Iterable[Kept]) -> list[Scene]:
    """A sweep in chapters, in the order of data set, model and Byzantine fraction."""

    def shared(run: Kept) -> tuple[str, str, float]:
        return run.experiment.dataset, run.experiment.model, run.experiment.byzantine_fraction

    groups = [list(group) for _, group in groupby(sorted(runs, key=shared), shared)]
    if len(groups) == 1:
        return [Scene(groups[0], *_axes(groups[0]))]
    return [Scene(group, *_axes(group), number) for number, group in enumerate(groups, start=1)]


def _axes(runs: Sequence[Kept]) -> tuple[str, str]:
    """What tells rows and columns apart, besides the seed.

    Rows are methods, and each setting in which runs of one method differ; columns are attacks. An attack on the
    vote is a column too, unless nothing else tells rows apart.
    """
    varying = _varying([run.experiment for run in runs])
    others = [name for name in varying if name != "vote_attack"]
    if others and len(others) < len(varying):
        return " ".join(["method", *others]), "attack vote_attack"
    return " ".join(["method", *varying]), "attack"


def _varying(experiments: Sequence[Experiment]) -> list[str]:
    """Each setting in which runs of one method differ; rounds only if they alone tell two runs apart."""
    firsts: dict[str, Experiment] = {}
    differing: set[str] = set()
    for experiment in experiments:
        differing |= set(firsts.setdefault(experiment.method_label, experiment).differences(experiment))
    names = [f.name for f in fields(Experiment) if f.name in differing - NOT_VARYING - {"attack", "rounds"}]
    return names + varying_settings(experiments, ["method", "attack", *names])


@dataclass(frozen=True)
class Point:
    """One point of a curve: what the runs of a cell had reached by a round."""

    round: int
    cell: Cell


def mean_curve(runs: Sequence[Kept], *, deployed: bool = True) -> list[Point]:
    """The accuracy over rounds, at the rounds of the run that was tested most often, and at the last round."""
    rounds = [tested for tested, _ in max((curve_of(run, deployed) for run in runs), key=len)]
    last = max(run.experiment.rounds for run in runs)
    if rounds[-1:] != [last]:
        rounds.append(last)
    reached = {number: [accuracy_at(run, number, deployed) for run in runs] for number in rounds}
    cells = {n: Cell(tuple(value for value in values if value is not None)) for n, values in reached.items()}
    return [Point(number, cell) for number, cell in cells.items() if cell.values]


def diverged(run: Kept) -> bool:
    """Whether no client could train the single model any more, before the last round."""
    return run.summary.get("diverged_at") is not None


def curve_of(run: Kept, deployed: bool) -> Curve:
    """A run's accuracy over rounds: of what clients deploy, or of the best model."""
    return run.deployed if deployed else run.curve


def accuracy_at(run: Kept, number: int, deployed: bool) -> float | None:
    """The accuracy when a run was last tested by a round; a model that diverged keeps its own to the end."""
    if diverged(run) and number >= run.summary["diverged_at"]:
        return float(run.summary[DEPLOYED if deployed else PAPERS])
    known = [accuracy for tested, accuracy in curve_of(run, deployed) if tested <= number]
    return known[-1] if known else None
