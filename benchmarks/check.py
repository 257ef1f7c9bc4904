"""`make bench-check`: the ratios of the first table once more, against floors that any machine meets.

A floor is half of a target: what falls below it has lost its vectors, its batches or its caches, on whatever
processor and however busy. `make bench` compares more finely, with what was kept of the same kind of processor.
"""

import sys

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.workloads import Workload, measure, workloads

FLOOR = 0.5
"""The share of its target that a ratio may fall to."""
ATTEMPTS = 5
"""Only a workload that is too slow so many times in a row has become slower: the machine may be busy."""


def main() -> None:
    """Measure, print, and fail if one has become slower."""
    torch.set_flush_denormal(True)
    table = Table("work", "floor", "now", "")
    slower = 0
    for workload in workloads(turns=3):
        floor = FLOOR * workload.target
        ratio = best_ratio(workload, floor)
        slower += ratio < floor
        table.add_row(workload.name, f"{floor:.1f}×", f"{ratio:.1f}×", "slower" if ratio < floor else "")
    Console().print(table)
    if slower:
        sys.exit(f"{slower} ratios are below half of their targets; run `make bench` to see more")


def best_ratio(workload: Workload, enough: float) -> float:
    """How many times faster ours is than the plain loop; tried again while it is not enough."""
    best = 0.0
    for _ in range(ATTEMPTS):
        best = max(best, measure(workload).ratio)
        if best >= enough:
            break
    return best


if __name__ == "__main__":
    main()
