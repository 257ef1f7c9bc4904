"""How flwr-datasets deals classes, for tests to compare with: `python -m tests.answers.make_dirichlet`.

It needs `pip install flwr-datasets`; version 0.6.1 made what is kept in dirichlet.json.
"""

import json
from pathlib import Path

import numpy as np
from datasets import Dataset
from flwr_datasets.partitioner import DirichletPartitioner

FILE = Path(__file__).with_name("dirichlet.json")
CLASSES = [300, 250, 400, 350]
"""How many images each class has."""


def counts(clients: int, alpha: float, seed: int) -> list[list[int]]:
    """How many images of each class each client gets."""
    labels = np.repeat(np.arange(len(CLASSES)), CLASSES)
    partitioner = DirichletPartitioner(clients, "label", alpha, min_partition_size=0, shuffle=False, seed=seed)
    partitioner.dataset = Dataset.from_dict({"label": labels})
    parts = [partitioner.load_partition(client)["label"] for client in range(clients)]
    return [np.bincount(np.array(part, dtype=int), minlength=len(CLASSES)).tolist() for part in parts]


def main() -> None:
    """Write the file."""
    cases = [
        {"clients": clients, "alpha": alpha, "seed": seed, "counts": counts(clients, alpha, seed)}
        for clients in (3, 10)
        for alpha in (0.1, 0.5, 1.0, 100.0)
        for seed in (1, 2, 3)
    ]
    FILE.write_text(json.dumps(cases, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
