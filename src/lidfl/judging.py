"""What clients find of models on their own data: each model once, all clients of a request in one pass."""

from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lidfl.datasets.federated import Shards
from lidfl.protocol import ModelList
from lidfl.types import Parameters, Updates

Clients: TypeAlias = NDArray[np.int64]
"""Several clients, in ascending order."""
NO_CLIENTS = np.empty(0, dtype=np.int64)
REMEMBERED = 100_000
"""So many clients' judgements of a model are remembered at most."""

Logits: TypeAlias = Callable[[Parameters, Tensor], Tensor]
"""From a model and images to logits."""
Measure: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""From logits and labels to a number for each image: its loss, or whether it is right."""


class Panel:
    """One split of all clients' data, by which they measure models."""

    def __init__(self, shards: Shards, logits: Logits, measure: Measure) -> None:
        self.shards = shards
        self.logits = logits
        self.measure = measure
        self._last: tuple[bytes, tuple[Tensor, Tensor]] | None = None

    def means(self, vectors: Updates, clients: Clients) -> Tensor:
        """The mean over each client's images of each model's measure, (models, clients).

        Where clients hold more images than there are, since they share them, each image is looked at once.
        """
        rows, sizes = self._gather(clients)
        images, labels = self.shards.images, self.shards.labels
        shared = len(rows) >= len(labels)
        if not shared:
            images, labels = images[rows], labels[rows]
        means = []
        for vector in vectors:
            values = self.measure(self.logits(vector, images), labels)
            values = values[rows] if shared else values
            means.append(torch.segment_reduce(values.double(), "mean", lengths=sizes))
        return torch.stack(means)

    def _gather(self, clients: Clients) -> tuple[Tensor, Tensor]:
        """The rows of these clients and how many each has; the last answer is kept for the next model."""
        key, device = clients.tobytes(), self.shards.labels.device
        if self._last is None or self._last[0] != key:
            rows, sizes = self.shards.gather(clients)
            self._last = key, (torch.from_numpy(rows).to(device), torch.from_numpy(sizes).to(device))
        return self._last[1]


class OncePerModel:
    """What clients find of each model of a list, computed once and remembered while the model stays."""

    def __init__(self, compute: Callable[[Parameters, Clients], NDArray[np.float64]]) -> None:
        self.compute = compute
        self.known: dict[int, tuple[Clients, NDArray[np.float64]]] = {}
        """By model: the clients that have judged it, in ascending order, and what they found."""
        self.computed: Counter[int] = Counter()

    def __call__(self, models: ModelList, clients: Clients) -> NDArray[np.float64]:
        """One row a client, in their order, which is ascending; one column a model."""
        self.known = {model: self.known[model] for model in models.ids if model in self.known}
        columns = [
            self._column(model, vector, clients)
            for model, vector in zip(models.ids, models.parameters, strict=True)
        ]
        return np.stack(columns, axis=1)

    def _column(self, model: int, vector: Parameters, clients: Clients) -> NDArray[np.float64]:
        asked, values = self.known.get(model, (NO_CLIENTS, np.empty(0)))
        missing = np.setdiff1d(clients, asked, assume_unique=True)
        if len(missing) > 0:
            asked, values = np.append(asked, missing), np.append(values, self.compute(vector, missing))
            order = asked.argsort()
            asked, values = asked[order], values[order]
            self.computed[model] += 1
        found = values[np.searchsorted(asked, clients)]
        # Committees are drawn from so many that an earlier judge hardly ever comes back.
        self.known[model] = (asked, values) if len(asked) <= REMEMBERED else (clients, found)
        return found
