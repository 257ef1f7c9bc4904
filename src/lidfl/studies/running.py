"""Runs a sweep: several runs at a time, resumed where they stopped, here or on a cluster."""

import importlib
import os
import sys
import traceback
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import joblib
import torch

from lidfl.errors import LidflError
from lidfl.plugins import absolute, load_recorded
from lidfl.runs.loop import drive
from lidfl.runs.server import Server, first_list
from lidfl.settings.experiment import Experiment
from lidfl.simulation.simulator import Simulator, run
from lidfl.studies.sweep import Sweep


@dataclass(frozen=True)
class Ended:
    """How a run of a sweep ended."""

    experiment: Experiment
    error: str | None = None
    """What went wrong, with its traceback."""


def run_one(experiment: Experiment, threads: int, place: Path | None = None) -> Ended:
    """Run or resume one experiment in a worker; whatever goes wrong is brought back, not raised.

    A worker of this machine may be one that an earlier sweep left in another working directory.
    """
    torch.set_num_threads(threads)
    try:
        if place is not None:
            os.chdir(place)
            if str(place) not in sys.path:  # models and plugins may lie beside the sweep
                sys.path.insert(0, str(place))
        load_recorded(experiment.plugin)  # a worker has not seen it yet
        run(experiment, resume=True)
    except Exception as error:
        reason = str(error) if isinstance(error, LidflError) else traceback.format_exc()
        return Ended(experiment, reason)
    return Ended(experiment)


def run_all(sweep: Sweep, workers: int, threads: int = 1, backend: str = "local") -> Iterator[Ended]:
    """Run what is not finished, several runs at a time, and yield each as it ends."""
    waiting = sweep.waiting
    if backend != "local":  # a cluster's workers have other working directories
        waiting = [e.with_settings(out=str(Path(e.out).resolve()), plugin=absolute(e.plugin)) for e in waiting]
    here = Path.cwd() if backend == "local" else None
    calls = (joblib.delayed(run_one)(experiment, threads, here) for experiment in waiting)
    # joblib's Ray backend can only hand over all results at the end.
    order = "list" if backend == "ray" else "generator_unordered"
    try:
        yield from joblib.Parallel(n_jobs=workers, return_as=order, batch_size=1)(calls)
    except BrokenExecutor:
        raise LidflError(
            "a worker process was killed, most often for want of memory; finished runs are kept, and the same "
            "command goes on with the others: fewer workers=… need less"
        ) from None


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
        alike = Experiment.unchecked(vars(experiment) | dict(seed=0, rounds=1, out="", name="", eval_every=1))
        kinds.setdefault(alike.to_toml(), []).append(experiment)
    for experiments in kinds.values():
        a_round = seconds_per_round(experiments[0], rounds)
        yield Estimate(experiments[0], len(experiments), sum(e.rounds for e in experiments) * a_round)


def seconds_per_round(experiment: Experiment, rounds: int) -> float:
    """The mean time of a few rounds from the start, once the first has warmed up."""
    simulator, server = Simulator.of(experiment), Server(experiment)
    models = first_list(experiment, simulator.network.initial())
    began = 0.0
    for round_index in range(rounds + 1):
        if round_index == 1:
            began = perf_counter()
        models = drive(server.round(models, round_index), simulator.answer).models
    return (perf_counter() - began) / rounds
