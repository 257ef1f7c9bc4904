"""Many experiments from one file: expanded, and each given a directory of its own.

A sweep file is an experiment with lists. Every combination of the listed values is a run; named groups hold what
differs from one to the next:

    dataset = "femnist"
    attack = ["sign_flip", "lie"]
    seed = [2024, 2025, 2026]

    [groups.lidfl]
    method = "lidfl"

    [groups.baselines]
    method = ["fedavg", "gm"]
    eval_every = 50
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import blake2b
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from lidfl.errors import LidflError
from lidfl.files import fits, read_toml
from lidfl.runs.directory import RunDirectory, Summary
from lidfl.settings.checks import check_run_name
from lidfl.settings.defaults import Settings
from lidfl.settings.experiment import Experiment, file_name

NOT_CONTENT = {"name", "out", "device", "engine", "checkpoint_every"}
"""Settings that do not change what a run finds, and so do not change its directory."""

DEPLOYED = "deployed_accuracy"
"""What honest clients get: the mean test accuracy of the models that they deploy, by their own data."""
PAPERS = "test_accuracy"
"""What the paper reports: the test accuracy of the list's best model, which no client can know."""
MOST_RUNS = 20_000
"""More runs than that would take seconds to name, and months to play."""

Result = tuple[Experiment, Summary]
"""A finished run: its settings and its summary."""


@dataclass(frozen=True)
class Sweep:
    """Runs that belong together, in the order of the file."""

    name: str
    out: Path
    runs: tuple[Experiment, ...]
    rows: str = "method"
    columns: str = "attack"
    value: str = DEPLOYED
    """How its results are tabulated: settings, several joined by a space, and what of a summary is shown."""

    @property
    def waiting(self) -> list[Experiment]:
        """The runs that have no result yet."""
        return [experiment for experiment in self.runs if not RunDirectory(experiment.out).is_finished]

    def results(self) -> list[Result]:
        """The finished runs with their summaries."""
        finished = [(e, RunDirectory(e.out)) for e in self.runs]
        return [(e, directory.summary()) for e, directory in finished if directory.is_finished]


def read_sweep(path: Path, out: Path | None = None, scale: float = 1.0, plugin: Sequence[Path] = ()) -> Sweep:
    """The sweep in a TOML file; `scale` makes every run longer or shorter, and every run takes the plugins."""
    settings = read_toml(path) | ({"plugin": tuple(plugin)} if plugin else {})
    groups = settings.pop("groups", {})
    name = settings.pop("name", path.stem)
    layout = {key: settings.pop(key) for key in ("rows", "columns", "value") if key in settings}
    if not isinstance(groups, dict) or not all(isinstance(group, dict) for group in groups.values()):
        raise LidflError(f"{path}: groups are tables, such as [groups.lidfl]")
    for key, value in [("name", name), *layout.items()]:
        if not fits(value, str):
            raise LidflError(f"{path}: {key} must be a text, not {value!r}")
    check_run_name(name)
    _refuse_endless(path, [settings | own for own in groups.values()] or [settings])
    folder = out or Path("runs") / name
    runs: dict[str, Experiment] = {}
    for group, own in (groups or {name: {}}).items():
        for combination in expand(settings | own):
            experiment = Experiment.of(combination | {"name": group})
            experiment = experiment.with_settings(rounds=max(1, round(experiment.rounds * scale)))
            runs.setdefault(directory_name(experiment), experiment)
    placed = [e.with_settings(out=str(folder / directory)) for directory, e in runs.items()]
    return Sweep(name, folder, tuple(placed), **layout)


def expand(settings: Mapping[str, Any]) -> Iterator[Settings]:
    """Every combination of the listed values, the last list varying fastest."""
    for values in product(*_choices(settings)):
        yield dict(zip(settings, values, strict=True))


def _choices(settings: Mapping[str, Any]) -> list[list[Any]]:
    """The values of each setting: those listed, or the one."""
    return [value if isinstance(value, list) and name != "plugin" else [value] for name, value in settings.items()]


def _refuse_endless(path: Path, groups: Iterable[Mapping[str, Any]]) -> None:
    """Refuse more runs than anybody waits for; they are counted, not made."""
    runs = sum(prod(map(len, _choices(settings))) for settings in groups)
    if not 0 < runs <= MOST_RUNS:
        raise LidflError(
            f"{path} stands for {runs:,} runs; a sweep has from 1 to {MOST_RUNS:,}, so shorten its lists"
        )


def directory_name(experiment: Experiment) -> str:
    """A name that says what the run is, and is the same for the same settings.

    Settings at their default do not count, so that an option added later leaves the names of earlier runs alone;
    and one that was renamed counts under its old name.
    """
    content = [
        (setting.metadata["formerly"] or setting.name, getattr(experiment, setting.name))
        for setting in fields(experiment)
        if setting.name not in NOT_CONTENT and getattr(experiment, setting.name) != setting.metadata["neutral"]
    ]
    digest = blake2b(repr(sorted(content)).encode(), digest_size=5).hexdigest()
    parts = [experiment.method_label, experiment.attack, str(experiment.byzantine_fraction), str(experiment.seed)]
    return f"{file_name(*parts)}-{digest}"


def but_for_rounds(experiment: Experiment) -> str:
    """The same for two experiments that differ in nothing but their rounds."""
    return directory_name(Experiment.unchecked(vars(experiment) | {"rounds": 1}))
