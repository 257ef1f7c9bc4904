"""Timing on a noisy machine: contestants take turns, and the fastest of each one's turns counts."""

import gc
import platform
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import torch

Work = Callable[[], object]


def seconds(work: Work) -> float:
    """How long one turn takes."""
    began = perf_counter()
    work()
    return perf_counter() - began


def fastest(contestants: dict[str, Work], turns: int) -> dict[str, float]:
    """The fastest turn of each contestant, after one turn to warm up; they alternate, so that noise hits all."""
    for work in contestants.values():
        work()
    gc.collect()
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(turns):
        for name, work in contestants.items():
            best[name] = min(best[name], seconds(work))
    return best


def gemm_peak(size: int = 1536) -> float:
    """What the machine does at best: multiply-adds ×2 per second of a large float32 matrix product."""
    matrix = torch.randn(size, size)
    return 2 * size**3 / fastest({"gemm": lambda: matrix @ matrix}, turns=7)["gemm"]


def machine() -> dict[str, str | int]:
    """The machine and what runs on it."""
    return {
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.system(),
    }


def _processor() -> str:
    """The processor's name, with the widest vector instructions it has."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    name = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}"
