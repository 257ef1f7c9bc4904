"""From a data set and the clients' rows to what each client holds, cut three ways and standardised."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

from lidfl.data.base import Dataset, Images, Indices
from lidfl.data.shards import CHUNK, DrawnShards, FederatedData, Shards, Statistics
from lidfl.data.splits import split_sizes
from lidfl.errors import LidflError
from lidfl.seeds import rng_for


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
    else:
        check_statistics(statistics, data.images)
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


def check_statistics(statistics: Statistics, images: Images) -> None:
    """Refuse images that are not of the shape for which a run's statistics are."""
    if not _fits(statistics.mean, images) or not _fits(statistics.std, images):
        shape = tuple(statistics.mean.shape)
        raise LidflError(f"images are {images.shape[1:]}, the statistics {shape}; bring matching images")


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
