"""How a sweep uses the cores: one process a core with one thread each, or one process with all threads.

    python -m benchmarks.sweeping

Both sides play the same runs, in turns, each time in new directories; what is compared is the median of each side.
"""

import os
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

from rich.console import Console

from lidfl.settings.experiment import Experiment
from lidfl.studies.running import run_all
from lidfl.studies.sweep import Sweep

RUNS = 4
TURNS = 2
KINDS: dict[str, dict[str, object]] = {
    "LiD-FL": dict(method="lidfl", rounds=200),
    "FedAvg": dict(method="fedavg", rounds=30),
    "lidfl-ranked": dict(method="lidfl-ranked", rounds=10),
}


def sweep(settings: dict[str, object], folder: Path) -> Sweep:
    """A few runs of FEMNIST with the LR model that differ in their seeds."""
    runs = [
        Experiment.of(dict(dataset="femnist", seed=seed, out=str(folder / str(seed))) | settings)
        for seed in range(RUNS)
    ]
    return Sweep("sweeping", folder, tuple(runs))


def seconds(settings: dict[str, object], workers: int, threads: int) -> float:
    """The time that a sweep takes."""
    with tempfile.TemporaryDirectory() as folder:
        began = perf_counter()
        failed = [ended.error for ended in run_all(sweep(settings, Path(folder)), workers, threads) if ended.error]
        assert not failed, failed[0]
        return perf_counter() - began


def main() -> None:
    """Print both sides of each kind of run, and their ratio."""
    cores = os.cpu_count() or 1
    for name, settings in KINDS.items():
        turns = [(seconds(settings, cores, 1), seconds(settings, 1, cores)) for _ in range(TURNS)]
        many, one = (median(side) for side in zip(*turns, strict=True))
        Console().print(
            f"{name}: {RUNS} runs in {many:.1f} s with {cores} processes of 1 thread, "
            f"{one:.1f} s with 1 process of {cores} threads: {one / many:.2f}×",
            highlight=False,
        )


if __name__ == "__main__":
    main()
