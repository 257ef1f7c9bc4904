"""Many experiments from one file: expanded, run in parallel, resumed, never mixed up.

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

import importlib
import traceback
from collections.abc import Iterator, Mapping
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from dataclasses import dataclass, fields
from hashlib import blake2b
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import joblib
import torch

from lidfl.config import Experiment, Settings, file_name, read_toml
from lidfl.errors import LidflError
from lidfl.protocol import drive
from lidfl.rundir import RunDirectory
from lidfl.server import Server
from lidfl.simulation import run
from lidfl.simulator import Simulator
from lidfl.tables import Result

NOT_CONTENT = {"name", "out", "device", "engine", "checkpoint_every"}
"""Settings that do not change what a run finds, and so do not change its directory."""


@dataclass(frozen=True)
class Sweep:
    """Runs that belong together, in the order of the file."""

    name: str
    out: Path
    runs: tuple[Experiment, ...]
    rows: str = "method"
    columns: str = "attack"
    value: str = "test_accuracy"
    """How its results are tabulated: settings, several joined by a space, and what of a summary is shown."""

    @property
    def waiting(self) -> list[Experiment]:
        """The runs that have no result yet."""
        return [experiment for experiment in self.runs if not is_finished(experiment)]


@dataclass(frozen=True)
class Ended:
    """How a run of a sweep ended."""

    experiment: Experiment
    error: str | None = None
    """What went wrong, with its traceback."""


def read_sweep(path: Path, out: Path | None = None, scale: float = 1.0) -> Sweep:
    """The sweep in a TOML file; `scale` makes every run longer or shorter."""
    settings = read_toml(path)
    groups = settings.pop("groups", {})
    name = settings.pop("name", path.stem)
    layout = {key: settings.pop(key) for key in ("rows", "columns", "value") if key in settings}
    if not isinstance(groups, dict) or not all(isinstance(group, dict) for group in groups.values()):
        raise LidflError(f"{path}: groups are tables, such as [groups.lidfl]")
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
    choices = [value if isinstance(value, list) else [value] for value in settings.values()]
    for values in product(*choices):
        yield dict(zip(settings, values, strict=True))


def directory_name(experiment: Experiment) -> str:
    """A name that says what the run is, and is the same for the same settings.

    Settings at their default do not count, so that an option added later leaves the names of earlier runs alone.
    """
    settings = ((f.name, getattr(experiment, f.name), f.metadata["neutral"]) for f in fields(experiment))
    content = sorted(
        (name, value) for name, value, neutral in settings if value != neutral and name not in NOT_CONTENT
    )
    digest = blake2b(repr(content).encode(), digest_size=5).hexdigest()
    parts = [experiment.method_label, experiment.attack, str(experiment.byzantine_fraction), str(experiment.seed)]
    return f"{file_name(*parts)}-{digest}"


def is_finished(experiment: Experiment) -> bool:
    """Whether a run has its result."""
    return (Path(experiment.out) / "summary.json").exists()


def play(experiment: Experiment, threads: int) -> Ended:
    """Run or resume one experiment in a worker; whatever goes wrong is brought back, not raised."""
    torch.set_num_threads(threads)
    try:
        run(experiment, resume=True)
    except Exception as error:
        reason = str(error) if isinstance(error, LidflError) else traceback.format_exc()
        return Ended(experiment, reason)
    return Ended(experiment)


def play_all(sweep: Sweep, workers: int, threads: int = 1, backend: str = "local") -> Iterator[Ended]:
    """Play what is not finished, several runs at a time, and yield each as it ends."""
    waiting = sweep.waiting
    if backend != "local":  # a cluster's workers have other working directories
        waiting = [e.with_settings(out=str(Path(e.out).resolve())) for e in waiting]
    calls = (joblib.delayed(play)(experiment, threads) for experiment in waiting)
    # joblib's Ray backend can only hand over all results at the end.
    order = "list" if backend == "ray" else "generator_unordered"
    try:
        yield from joblib.Parallel(n_jobs=workers, return_as=order, batch_size=1)(calls)
    except BrokenExecutor:
        raise LidflError(
            "a worker process was killed, most often for want of memory; finished runs are kept, and the same "
            "command goes on with the others: fewer --workers need less"
        ) from None


def results(sweep: Sweep) -> list[Result]:
    """The finished runs with their summaries, in the order of the sweep."""
    finished = [experiment for experiment in sweep.runs if is_finished(experiment)]
    return [(experiment, RunDirectory(experiment.out).summary()) for experiment in finished]


@contextmanager
def cluster(backend: str, address: str | None) -> Iterator[None]:
    """Where joblib sends the runs: processes of this machine, or the workers of a Ray or Dask cluster."""
    if backend == "local":
        yield
    elif backend == "ray":
        ray, register = _needs("ray", "ray"), _needs("ray.util.joblib", "ray").register_ray
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        register()
        try:
            with joblib.parallel_config("ray"):
                yield
        finally:
            ray.shutdown()
    elif backend == "dask":
        with _needs("dask.distributed", "dask").Client(address), joblib.parallel_config("dask"):
            yield
    else:
        raise LidflError(f"unknown backend '{backend}'; choose from local, ray, dask")


def _needs(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise LidflError(f"this needs {extra}: pip install 'lidfl[{extra}]'") from None


@dataclass(frozen=True)
class Estimate:
    """How long the runs of one kind will take, all together, on one worker."""

    kind: Experiment
    runs: int
    seconds: float


def estimate(sweep: Sweep, rounds: int = 3) -> Iterator[Estimate]:
    """Time a few rounds of each kind of run that is waiting; nothing is written."""
    kinds: dict[str, list[Experiment]] = {}
    for experiment in sweep.waiting:
        same = experiment.with_settings(seed=0, rounds=1, out="", name="", eval_every=1)
        kinds.setdefault(same.to_toml(), []).append(experiment)
    for experiments in kinds.values():
        a_round = seconds_per_round(experiments[0], rounds)
        yield Estimate(experiments[0], len(experiments), sum(e.rounds for e in experiments) * a_round)


def seconds_per_round(experiment: Experiment, rounds: int) -> float:
    """The mean time of a few rounds from the start, once the first has warmed up."""
    simulator, server = Simulator.of(experiment), Server(experiment)
    models = server.start(simulator.network.initial())
    began = 0.0
    for round_index in range(rounds + 1):
        if round_index == 1:
            began = perf_counter()
        models = drive(server.round(models, round_index), simulator.answer).models
    return (perf_counter() - began) / rounds
