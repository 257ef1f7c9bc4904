"""`make bench-check`: the ratios of the first table once more, against those that are kept."""

import json
import sys
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.workloads import Workload, measure, workloads

KEPT = Path(__file__).parent / "results.json"
ALLOWED = 0.8
"""A ratio may fall to this share of the one that is kept."""
ATTEMPTS = 5
"""The machine is noisy: only a workload that is slow this many times in a row has become slower."""


def main() -> None:
    """Measure, print, and fail if one has become slower."""
    torch.set_flush_denormal(True)
    kept = {w["name"]: w["plain"] / w["ours"] for w in json.loads(KEPT.read_text())["workloads"]}
    table = Table("work", "kept", "now", "")
    slower = 0
    for workload in workloads(turns=3):
        ratio = best_ratio(workload, ALLOWED * kept[workload.name])
        holds = ratio >= ALLOWED * kept[workload.name]
        slower += not holds
        table.add_row(workload.name, f"{kept[workload.name]:.1f}×", f"{ratio:.1f}×", "" if holds else "slower")
    Console().print(table)
    if slower:
        sys.exit(f"{slower} ratios fell below {ALLOWED:.0%} of those in {KEPT.name}; run `make bench` to see more")


def best_ratio(workload: Workload, enough: float) -> float:
    """How many times faster ours is than the plain loop; tried again while it is not enough."""
    best = 0.0
    for _ in range(ATTEMPTS):
        best = max(best, measure(workload).ratio)
        if best >= enough:
            break
    return best


main()
