"""What clients find of models on their own data: each model once, all clients of a request in one pass."""

from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lidfl.adversaries.backdoors import AnyTrigger
from lidfl.data.shards import FederatedData, Shards
from lidfl.learning.client import Measure, finite_or_inf, image_hits
from lidfl.protocol import ModelList
from lidfl.runs.stopwatch import Stopwatch
from lidfl.types import Losses, Models, Parameters

Clients: TypeAlias = NDArray[np.int64]
"""Several clients, in ascending order."""
NO_CLIENTS = np.empty(0, dtype=np.int64)
REMEMBERED = 100_000
"""So many clients' judgements of a model are remembered at most."""

Logits: TypeAlias = Callable[[Parameters, Tensor], Tensor]
"""From a model and images to logits."""


class Yardstick:
    """One split of all clients' data, by which they measure models."""

    def __init__(self, shards: Shards, logits: Logits, measure: Measure) -> None:
        self.shards = shards
        self.logits = logits
        self.measure = measure
        self._last: tuple[bytes, tuple[Tensor, Tensor]] | None = None

    def means(self, vectors: Models, clients: Clients) -> Tensor:
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

    def values(self, vectors: Models, client: int) -> Tensor:
        """Each model's measure of each of a client's images, (models, images)."""
        images, labels = self.shards.of(client)
        return torch.stack([self.measure(self.logits(vector, images), labels).double() for vector in vectors]).cpu()

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


def classes_of(data: FederatedData) -> list[int]:
    """The classes of which there is an image, whoever holds it."""
    splits = (data.train, data.validation, data.test)
    return sorted({label for split in splits for label in np.unique(split.labels.cpu().numpy()).tolist()})


class Judges:
    """All clients as judges of models: their validation losses and their test accuracies."""

    def __init__(self, data: FederatedData, logits: Logits, stopwatch: Stopwatch, measure: Measure) -> None:
        self.stopwatch = stopwatch
        self.num_classes = data.num_classes
        self.classes = classes_of(data)
        self.validation = Yardstick(data.validation, logits, measure)
        self.testing = Yardstick(data.test, logits, image_hits)
        self._losses = OncePerModel(self.loss)
        self._accuracies = OncePerModel(self.accuracy)

    def losses(self, candidates: ModelList, clients: Clients) -> Losses:
        """The validation loss of every candidate for each of these clients, (clients, candidates)."""
        with self.stopwatch.timed("evaluation"):
            return self._losses(candidates, clients)

    def fleeting_losses(self, models: Models, clients: Clients) -> Losses:
        """The same for models that are in no list; nothing of it is remembered."""
        with self.stopwatch.timed("evaluation"):
            return finite_or_inf(self.validation.means(models, clients)).T

    def accuracies(self, models: ModelList, clients: Clients) -> NDArray[np.float64]:
        """The test accuracy of every model for each of these clients, (clients, models)."""
        with self.stopwatch.timed("testing"):
            return self._accuracies(models, clients)

    def loss(self, vector: Parameters, clients: Clients) -> NDArray[np.float64]:
        """Each client's validation loss of one model."""
        return finite_or_inf(self.validation.means(vector[None], clients)[0])

    def accuracy(self, vector: Parameters, clients: Clients) -> NDArray[np.float64]:
        """Each client's test accuracy of one model."""
        accuracies: NDArray[np.float64] = self.testing.means(vector[None], clients)[0].cpu().numpy()
        return accuracies

    def by_class(self, vector: Parameters, clients: Clients) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Of these clients' test images of each class: how many a model gets right, and how many there are."""
        shards, (rows, _) = self.testing.shards, self.testing.shards.gather(clients)
        chosen = torch.from_numpy(rows).to(shards.labels.device)
        shared = len(rows) >= len(shards.labels)  # each image is looked at once, however many hold it
        hits = image_hits(
            self.testing.logits(vector, shards.images if shared else shards.images[chosen]),
            shards.labels if shared else shards.labels[chosen],
        )
        labels = shards.labels[chosen].cpu().numpy()
        right = (hits[chosen] if shared else hits).cpu().numpy()
        return np.bincount(labels[right], minlength=self.num_classes), np.bincount(
            labels, minlength=self.num_classes
        )

    def successes(self, trigger: AnyTrigger, models: Models, clients: Clients) -> NDArray[np.float64]:
        """Of each client's test images of other classes the share that a trigger turns, (models, clients).

        Not a number for a client that has no such images.
        """
        shards = self.testing.shards
        stamped = trigger.stamped(shards.images)
        others = trigger.counted(shards.images, shards.labels)
        rows, sizes = shards.gather(clients)
        owners = np.repeat(np.arange(len(clients)), sizes)
        counted = others.cpu().numpy()[rows]
        shares = []
        for model in models:
            turned = (self.testing.logits(model, stamped).argmax(1) == trigger.target).cpu().numpy()[rows] & counted
            counts = np.bincount(owners[counted], minlength=len(clients)).astype(float)
            counts[counts == 0] = np.nan
            shares.append(np.bincount(owners[turned], minlength=len(clients)) / counts)
        return np.stack(shares)

    @property
    def evaluations(self) -> Counter[int]:
        """How often the validation losses of each model, by id, were computed."""
        return self._losses.computed
