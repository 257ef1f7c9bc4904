"""From a data set and the clients' rows to standardised tensors: three splits, ragged, never padded."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

from lidfl.datasets.base import Dataset, Images, Indices
from lidfl.errors import LidflError
from lidfl.seeds import rng_for

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

    def to(self, device: torch.device | str) -> "Shards":
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


def parse_split(text: str) -> tuple[int, int, int]:
    """Read a ratio of training to validation to test images, such as `36:9:5`."""
    parts = text.split(":")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        raise LidflError(f"split '{text}' must be train:validation:test in whole numbers from 1, such as 36:9:5")
    train, validation, test = map(int, parts)
    return train, validation, test


def split_sizes(n: int, ratio: tuple[int, int, int]) -> tuple[int, int, int]:
    """The sizes closest to the ratio, each at least 1, that sum to n; ties favour the earlier split.

    Closest means the least Σ (size - n·part/total)²: split_sizes(100, (36, 9, 5)) is (72, 18, 10).
    """
    if n < 3:
        raise LidflError(f"a client with {n} images cannot be split three ways; give each client at least 3")
    total = sum(ratio)
    # The optimum is next to the exact quota, or up to 2 below it where the others are raised to 1.
    train_sizes, validation_sizes = (_around(n * part // total) for part in ratio[:2])
    choices = [(train, held, n - train - held) for train in train_sizes for held in validation_sizes]

    def distance(sizes: tuple[int, int, int]) -> int:
        return sum((size * total - n * part) ** 2 for size, part in zip(sizes, ratio, strict=True))

    return min(
        (sizes for sizes in choices if sizes[2] >= 1),
        key=lambda sizes: (distance(sizes), -sizes[0], -sizes[1]),
    )


def _around(quota: int) -> range:
    return range(max(1, quota - 2), max(1, quota + 1) + 1)


def federate(
    data: Dataset,
    clients: list[NDArray[np.int64]],
    ratio: tuple[int, int, int],
    rng: Generator,
    device: torch.device | str = "cpu",
    statistics: Statistics | None = None,
) -> FederatedData:
    """Shuffle each client's images, cut them three ways, and standardise all as the training images demand.

    Given `statistics` are used instead: a client judges a published model with its own data.
    """
    cut = [_cut_client(images, ratio, rng) for images in clients]
    train, validation, test = (list(split) for split in zip(*cut, strict=True))
    channels, height, width = data.images.shape[1:]
    if statistics is None:
        statistics = measure(data.images, np.concatenate(train), data.standardise)
    elif not _fits(statistics.mean, data.images) or not _fits(statistics.std, data.images):
        shape = tuple(statistics.mean.shape)
        raise LidflError(f"images are {(channels, height, width)}, the statistics {shape}; bring matching images")
    return FederatedData(
        _shards(data, train, statistics).to(device),
        _shards(data, validation, statistics).to(device),
        _shards(data, test, statistics).to(device),
        data.num_classes,
        (channels, height, width),
        statistics,
    )


def federate_drawn(
    data: Dataset,
    num_clients: int,
    per_client: int,
    ratio: tuple[int, int, int],
    seed: int,
    device: torch.device | str = "cpu",
    statistics: Statistics | None = None,
) -> FederatedData:
    """Cut all images three ways, and let every client draw its own from each part when it is asked."""
    sizes = split_sizes(per_client, ratio)
    everything = [np.arange(len(data.labels))]
    whole = federate(data, everything, ratio, rng_for(seed, "split"), device, statistics)
    parts = []
    for split, size in zip(("train", "validation", "test"), sizes, strict=True):
        pool: Shards = getattr(whole, split)
        if size > len(pool.labels):
            raise LidflError(f"{len(data.labels)} images cannot give a client {per_client}; ask for a smaller size")
        parts.append(DrawnShards(pool.images, pool.labels, pool.offsets, num_clients, size, seed, split))
    train, validation, test = parts
    return replace(whole, train=train, validation=validation, test=test)


def _cut_client(images: Indices, ratio: tuple[int, int, int], rng: Generator) -> tuple[Indices, Indices, Indices]:
    """One client's rows in random order, as training, validation and test rows."""
    train, validation, _ = split_sizes(len(images), ratio)
    first, second, third = np.split(rng.permutation(images), [train, train + validation])
    return first, second, third


def _shards(data: Dataset, rows: list[Indices], statistics: Statistics) -> Shards:
    joined = np.concatenate(rows)
    offsets = np.cumsum([0, *map(len, rows)])
    return Shards(statistics.apply(data.images, joined), torch.from_numpy(data.labels[joined]), offsets)


def _fits(values: Tensor, images: Images) -> bool:
    """Whether values broadcast to an image without changing its shape."""
    pairs = zip(values.shape, images.shape[1:], strict=False)
    return values.ndim == 3 and all(size in (1, wanted) for size, wanted in pairs)


def measure(images: Images, rows: Indices, over: Literal["pixel", "channel"]) -> Statistics:
    """Mean and population deviation over the images at `rows`, of each pixel or of each channel.

    A deviation of 0 becomes 1. The mean is taken relative to the first image: then a value that never changes
    has deviation 0 exactly, where a plain sum would round and leave a tiny deviation to divide by.
    """
    first = images[rows[0]].astype(np.float64)
    origin = first if over == "pixel" else first[:, :1, :1]
    mean = origin + _average(images, rows, over, lambda chunk: chunk - origin)
    std = np.sqrt(_average(images, rows, over, lambda chunk: (chunk - mean) ** 2))
    scale = 255 if images.dtype == np.uint8 else 1
    std[std == 0] = scale  # which is 1 on the scaled images
    return Statistics(_as_float32(mean / scale), _as_float32(std / scale))


def _average(
    images: Images,
    rows: Indices,
    over: Literal["pixel", "channel"],
    term: Callable[[NDArray[np.float64]], NDArray[np.float64]],
) -> NDArray[np.float64]:
    """The mean of `term` over images, and over a channel's pixels; double precision, a chunk at a time."""
    axes = (0,) if over == "pixel" else (0, 2, 3)
    total = np.float64(0)
    for start in range(0, len(rows), CHUNK):
        chunk = images[rows[start : start + CHUNK]].astype(np.float64)
        total = total + term(chunk).sum(axis=axes, keepdims=True)[0]
    return np.asarray(total / (len(rows) * images[0].size / total.size))


def _as_float32(values: NDArray[np.float64]) -> Tensor:
    return torch.from_numpy(values.astype(np.float32))
