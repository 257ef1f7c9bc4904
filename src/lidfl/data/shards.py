"""What clients hold, as tensors: three splits, ragged, never padded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lidfl.data.base import Images, Indices
from lidfl.lazily import torch
from lidfl.seeds import rng_for

if TYPE_CHECKING:
    from torch import Tensor

CHUNK = 2048
"""Images in work at a time: wide copies of the whole data are never made."""


@dataclass(frozen=True)
class Shards:
    """One split of all clients: client j owns rows offsets[j] … offsets[j + 1] - 1."""

    images: Tensor
    """Standardised float32, shape (N, channels, height, width)."""
    labels: Tensor
    """int64, shape (N,)."""
    offsets: NDArray[np.int64]
    """Shape (num_clients + 1,), from 0 to N."""

    @property
    def num_clients(self) -> int:
        """How many clients there are."""
        return len(self.offsets) - 1

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many images each client has, shape (num_clients,)."""
        return np.diff(self.offsets)

    def rows(self, client: int) -> NDArray[np.int64]:
        """The rows that a client owns."""
        return np.arange(*self.offsets[client : client + 2])

    def of(self, client: int) -> tuple[Tensor, Tensor]:
        """One client's images and labels: views, not copies."""
        rows = slice(int(self.offsets[client]), int(self.offsets[client + 1]))
        return self.images[rows], self.labels[rows]

    def gather(self, clients: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows of several clients one after the other, and how many each has."""
        if len(clients) == self.num_clients:
            return np.arange(self.offsets[-1]), self.sizes
        rows = [self.rows(client) for client in clients.tolist()]
        return np.concatenate(rows), np.array(list(map(len, rows)))

    def to(self, device: torch.device | str) -> Shards:
        """The same split on a device."""
        return replace(self, images=self.images.to(device), labels=self.labels.to(device))


@dataclass(frozen=True)
class DrawnShards(Shards):
    """One split that clients share: each client's rows are drawn when they are asked for, always the same.

    So there may be millions of clients, and those that nobody asks cost nothing.
    """

    clients: int = 0
    per_client: int = 0
    seed: int = 0
    split: str = ""

    @property
    def num_clients(self) -> int:
        """How many clients there are."""
        return self.clients

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many images each client has, shape (num_clients,)."""
        return np.full(self.clients, self.per_client)

    def rows(self, client: int) -> NDArray[np.int64]:
        """The rows that a client holds, none of them twice."""
        rng = rng_for(self.seed, "rows", self.split, client)
        return rng.choice(len(self.labels), self.per_client, replace=False)

    def of(self, client: int) -> tuple[Tensor, Tensor]:
        """One client's images and labels."""
        rows = torch.from_numpy(self.rows(client)).to(self.images.device)
        return self.images[rows], self.labels[rows]

    def gather(self, clients: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows of several clients one after the other, and how many each has."""
        rows = [self.rows(client) for client in clients.tolist()]
        return np.concatenate(rows), np.full(len(rows), self.per_client)


@dataclass(frozen=True)
class Statistics:
    """Mean and deviation that images are standardised with: (x - mean) / std, for x scaled to [0, 1]."""

    mean: Tensor
    """float32 on the CPU, shape (channels, height, width) or (channels, 1, 1)."""
    std: Tensor
    """Of the same shape; nowhere 0."""

    def apply(self, images: Images, rows: Indices | None = None) -> Tensor:
        """Standardise all images, or those at `rows` in that order; uint8 is divided by 255 first."""
        rows = np.arange(len(images)) if rows is None else rows
        result = torch.empty((len(rows), *images.shape[1:]), dtype=torch.float32)
        for start in range(0, len(rows), CHUNK):
            chunk = result[start : start + CHUNK]
            chunk.copy_(torch.from_numpy(images[rows[start : start + CHUNK]]))
            if images.dtype == np.uint8:
                chunk.div_(255)
            chunk.sub_(self.mean).div_(self.std)
        return result


@dataclass(frozen=True)
class FederatedData:
    """What all clients hold, in three splits, and how it was standardised."""

    train: Shards
    validation: Shards
    test: Shards
    num_classes: int
    image_shape: tuple[int, int, int]
    """Channels, height, width."""
    statistics: Statistics

    @property
    def num_clients(self) -> int:
        """How many clients share the data."""
        return self.train.num_clients

    def labels_of(self, client: int) -> tuple[int, ...]:
        """How many images of each class a client holds, in all splits together."""
        labels = torch.cat([split.of(client)[1] for split in (self.train, self.validation, self.test)])
        return tuple(torch.bincount(labels, minlength=self.num_classes).tolist())
