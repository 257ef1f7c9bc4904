"""Aggregators beside ByzFL's: `python -m benchmarks.aggregators`, seconds and memory of one call each.

Seconds are those of one processor, which other work on the machine disturbs least. Every call runs in a process
of its own, so that its peak of memory is its own, as a multiple of the input. A call that needs more than ten times
the input, or longer than the patience, is given up and said so. ByzFL needs `pip install --no-deps byzfl`; empty
modules stand in for what it imports besides.
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from time import process_time
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks import byzfl_alone
from lidfl.methods.pipelines import resolve_pipeline

SHAPES = [(35, 151_358), (200, 1_000_000)]
"""The paper's CNN on CIFAR-10 with 35 clients, and many clients with a model of a million parameters."""
PATIENCE = 300
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
TURNS = 3

PEERS: dict[str, Callable[[Any, int], Callable[[torch.Tensor], object]]] = {
    "fedavg": lambda byzfl, _f: byzfl.Average(),
    "cwm": lambda byzfl, _f: byzfl.Median(),
    "trimmed_mean": lambda byzfl, f: byzfl.TrMean(f=f),
    "meamed": lambda byzfl, f: byzfl.Meamed(f=f),
    "geometric_median": lambda byzfl, _f: byzfl.GeometricMedian(nu=1e-6, T=20),
    "krum": lambda byzfl, f: byzfl.Krum(f=f),
    "multi_krum": lambda byzfl, f: byzfl.MultiKrum(f=f),
    "cclip": lambda byzfl, _f: byzfl.CenteredClipping(L=3, tau=1.0),
    "monna": lambda byzfl, f: byzfl.MoNNA(f=f),
    "mda:f=3": lambda byzfl, _f: byzfl.MDA(f=3),
    "caf": lambda byzfl, f: byzfl.CAF(f=f),
    "nnm|fedavg": lambda byzfl, f: lambda updates: byzfl.Average()(byzfl.NNM(f=f)(updates)),
    "arc|fedavg": lambda byzfl, f: lambda updates: byzfl.Average()(byzfl.ARC(f=f)(updates)),
    "bucketing|fedavg": lambda byzfl, _f: lambda updates: byzfl.Average()(byzfl.Bucketing(s=2)(updates)),
}
ALONE = ["bulyan", "mca", "cge", "dnc", "signguard", "flame", "foolsgold", "nnm|trimmed_mean"]
"""Rules that ByzFL does not have."""


def call(whose: str, spec: str, f: int) -> Callable[[torch.Tensor], object]:
    """A rule anew, since some of ByzFL's remember."""
    if whose == "ByzFL":
        return PEERS[spec](byzfl_alone.load(), f)
    pipeline = resolve_pipeline(spec)
    return lambda given: pipeline.candidates(given, num_honest=len(given) - f, rng=np.random.default_rng(0))


def measure(whose: str, spec: str, rows: int, columns: int) -> dict[str, float]:
    """Seconds of the fastest turn, and the peak of memory as a multiple of the input."""
    updates = torch.randn(rows, columns, generator=torch.Generator().manual_seed(1))
    f = (rows - 3) // 4
    call(whose, spec, f)(updates[:, :100].clone())  # loads what is loaded at first use
    size = updates.numel() * updates.element_size()
    given = updates.clone()  # some of ByzFL's rules write into it
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    resource.setrlimit(resource.RLIMIT_AS, (before * 1024 + 10 * size + 2**32,) * 2)
    times: list[float] = []
    while len(times) < TURNS and sum(times) < PATIENCE / 4:
        rule = call(whose, spec, f)
        given.copy_(updates)
        began = process_time()
        rule(given)
        times.append(process_time() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": min(times), "memory": 1 + (peak - before) * 1024 / size}


def apart(whose: str, spec: str, shape: tuple[int, int]) -> dict[str, float] | None:
    """The same in a process of its own; None if it was given up."""
    command = [sys.executable, "-m", "benchmarks.aggregators", whose, spec, *map(str, shape)]
    try:
        done = subprocess.run(
            command, env=os.environ | ONE_THREAD, capture_output=True, text=True, timeout=PATIENCE, check=True
        )
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        return None
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measured() -> Iterator[dict[str, Any]]:
    """Every rule at every shape, beside ByzFL's where it has one."""
    for shape in SHAPES:
        for spec in [*PEERS, *ALONE]:
            yield {
                "shape": shape,
                "rule": spec,
                "peer": spec in PEERS,
                "lidfl": apart("lidfl", spec, shape),
                "ByzFL": apart("ByzFL", spec, shape) if spec in PEERS else None,
            }


def shown(found: dict[str, float] | None) -> tuple[str, str]:
    """Seconds and memory as text."""
    return (f"{found['seconds']:.3f} s", f"{found['memory']:.1f}×") if found else ("given up", "")


def main() -> None:
    """Print a table for each shape."""
    found = list(measured())
    for shape in SHAPES:
        table = Table("rule", "lidfl", "memory", "ByzFL", "memory", "faster", title="{} × {:,}".format(*shape))
        for row in found:
            ours, theirs = row["lidfl"], row["ByzFL"]
            ratio = f"{theirs['seconds'] / ours['seconds']:.1f}×" if ours and theirs else ""
            if row["shape"] == shape:
                table.add_row(row["rule"], *shown(ours), *(shown(theirs) if row["peer"] else ("", "")), ratio)
        Console(width=100).print(table)


if __name__ == "__main__":
    if len(sys.argv) == 5:
        print(json.dumps(measure(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))  # noqa: T201
    else:
        main()
