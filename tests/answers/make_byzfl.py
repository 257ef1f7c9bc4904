"""What ByzFL answers on small inputs, for tests to compare with: `python -m tests.answers.make_byzfl`.

It needs `pip install --no-deps byzfl`; version 0.0.11 made what is kept in byzfl.json.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import byzfl_alone

FILE = Path(__file__).with_name("byzfl.json")


def inputs() -> dict[str, list[list[float]]]:
    """Random, heavy-tailed and degenerate updates, exact in float32."""
    rng = np.random.default_rng(18)
    made = {
        "normal": rng.normal(size=(7, 5)),
        "even": rng.normal(size=(10, 4)),
        "cauchy": rng.standard_cauchy(size=(11, 6)),
        "one coordinate": rng.normal(size=(9, 1)),
        "far from 0": 1000 + rng.normal(size=(8, 3)),
        "two clusters": rng.normal(size=(9, 4)) + 10 * (np.arange(9) > 5)[:, None],
        "a zero row": np.vstack([np.zeros(4), rng.normal(size=(6, 4))]),
        "alone": rng.normal(size=(1, 3)),
        "three": rng.normal(size=(3, 3)),
    }
    return {name: shortest(matrix) for name, matrix in made.items()}


def shortest(values: "np.typing.ArrayLike") -> Any:
    """Numbers with as many digits as float32 has."""
    return np.asarray(values, dtype=np.float32).astype(str).astype(float).tolist()


def answers(byzfl: Any, updates: torch.Tensor, f: int) -> dict[str, list[Any]]:
    """ByzFL's answers with f Byzantine updates. Some of its rules write into their input, so each gets a copy."""
    rules = {
        "trimmed_mean": byzfl.TrMean(f=f),
        "meamed": byzfl.Meamed(f=f),
        "mda": byzfl.MDA(f=f),
        "monna": byzfl.MoNNA(f=f, idx=0),
        "cwm": byzfl.Median(),
        "geometric_median": byzfl.GeometricMedian(nu=1e-7, T=5000),
        "krum": byzfl.Krum(f=f),
        "multi_krum": byzfl.MultiKrum(f=f),
        "nnm": byzfl.NNM(f=f),
        "arc": byzfl.ARC(f=f),
        "clip": byzfl.Clipping(c=2.0),
        "ipm": byzfl.InnerProductManipulation(tau=2.0),
        "alie": byzfl.ALittleIsEnough(tau=1.5),
    }
    if len(updates) <= 1:
        del rules["mda"], rules["alie"]  # which fail there
    return {name: shortest(rule(updates.clone())) for name, rule in rules.items()}


def main() -> None:
    """Write the file."""
    byzfl = byzfl_alone.load()
    cases = [
        {"input": name, "updates": matrix, "f": f, "answers": answers(byzfl, torch.tensor(matrix), f)}
        for name, matrix in inputs().items()
        for f in range((len(matrix) + 1) // 2)
    ]
    FILE.write_text(json.dumps(cases, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
