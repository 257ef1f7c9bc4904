"""`make bench`: measure everything, print it, and keep it in results.json and README.md."""

import json
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks import aggregators, peers, scaling
from benchmarks.long_run import long_run
from benchmarks.page import page
from benchmarks.problem import cnn_problem, has_femnist, lr_problem
from benchmarks.timing import gemm_peak, machine
from benchmarks.workloads import measure, ranked_round, workloads

HERE = Path(__file__).parent
ALLOWED = 0.8
"""A ratio that falls to less than this share of the one that is kept is reported."""


def main() -> None:
    """Measure, print and write."""
    torch.set_flush_denormal(True)
    console = Console()
    results: dict[str, Any] = {"machine": machine(), "commit": commit(), "data": data_used()}
    results["gemm_peak"] = gemm_peak()
    results["workloads"] = []
    for workload in [*workloads(), ranked_round()]:
        timing = measure(workload)
        console.print(f"{timing.name}: {timing.ratio:.1f}× (target {timing.target:g}×)", highlight=False)
        results["workloads"].append(asdict(timing))
    results["peers"] = measure_peers(console)
    results["long_run"] = long_run()
    results["scaling"] = [asdict(point) for point in scaling.points()]
    scaling.draw([scaling.Point(**point) for point in results["scaling"]], HERE / "scaling.svg")
    for line in fallen(results, json.loads((HERE / "results.json").read_text())):
        console.print(line, style="bold red", highlight=False)
    results["rules"] = []
    keep(results)
    console.print("rules: seconds of one processor, which other work disturbs least", highlight=False)
    for row in aggregators.measured():
        results["rules"].append(row)
        keep(results)
    console.print((HERE / "README.md").read_text(), highlight=False, markup=False)


def keep(results: dict[str, Any]) -> None:
    """Write what has been measured so far: rules take as long as all the rest."""
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (HERE / "README.md").write_text(page(results))


def fallen(now: dict[str, Any], kept: dict[str, Any]) -> list[str]:
    """The ratios that fell below what is kept; other processors have others, so only the same kind is compared."""
    if now["machine"]["processor"] != kept["machine"]["processor"]:
        return [f"no comparison with what is kept: that comes from {kept['machine']['processor']}"]
    before = {work["name"]: work["plain"] / work["ours"] for work in kept["workloads"]}
    ratios = {work["name"]: work["plain"] / work["ours"] for work in now["workloads"]}
    return [
        f"{name}: {ratio:.1f}×, and {before[name]:.1f}× before"
        for name, ratio in ratios.items()
        if name in before and ratio < ALLOWED * before[name]
    ]


def measure_peers(console: Console) -> list[dict[str, Any]]:
    """A FedAvg and a median round of each framework that is installed, beside ours in the same run."""
    rows: list[dict[str, Any]] = []
    for build, repeats in ((lr_problem, 7), (cnn_problem, 2)):
        problem = build()
        for rule in peers.RULES:
            measured, left_out = peers.compare(problem, rule, repeats, threads=torch.get_num_threads())
            rows += [{"model": problem.name, "rule": rule} | asdict(result) for result in measured]
            rows += [{"model": problem.name, "rule": rule, "left_out": reason} for reason in left_out]
            for row in measured:
                console.print(f"{problem.name} {rule}: {row.name} {row.seconds * 1000:.0f} ms", highlight=False)
    return rows


def commit() -> str:
    """The commit that was measured, marked if the tree had changes."""
    describe = ["git", "describe", "--always", "--dirty"]
    result = subprocess.run(describe, cwd=HERE, capture_output=True, text=True, check=False)
    return result.stdout.strip() or "unknown"


def data_used() -> str:
    """What the images were."""
    return "FEMNIST" if has_femnist() else "noise in FEMNIST's shape"


main()
