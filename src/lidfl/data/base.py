"""What every data set looks like, and where its files are looked for."""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from lidfl.errors import LidflError
from lidfl.registry import Registry

Images: TypeAlias = NDArray[np.uint8] | NDArray[np.float32]
"""Shape (N, channels, height, width); uint8 stands for 0 … 255 and is scaled by 1/255 when it is used."""

Indices: TypeAlias = NDArray[np.int64]
"""Rows of a data set."""

MANY_CLASSES, FEW_IMAGES = 100, 20
"""So many classes with so few images each are likely to be a mistake."""

SMALL_ENOUGH, MOST_RATIO = 1 << 26, 200
"""Bytes that may be unpacked from anything; beyond, so many from one. Digits on white paper reach about 10."""

DATA_VARIABLE = "LIDFL_DATA"
"""The environment variable that names the directory of data files."""


@dataclass(frozen=True)
class Dataset:
    """Labelled images, before they are dealt to clients."""

    images: Images
    labels: NDArray[np.int64]
    """Shape (N,), classes 0 … num_classes - 1."""
    num_classes: int
    standardise: Literal["pixel", "channel"]
    """Whether each pixel, or each channel, is brought to mean 0 and deviation 1."""
    writers: NDArray[np.int64] | None = None
    """Who wrote each image, shape (N,), where that is known."""
    clients: NDArray[np.int64] | None = None
    """Which client has each image, 0 … clients - 1, where the data says so."""


@dataclass(frozen=True)
class Given:
    """Data that is there already, in the place of a function that loads it."""

    data: Dataset

    def __call__(self) -> Dataset:
        """The data."""
        return self.data


log = logging.getLogger(__name__)

dataset = Registry[Dataset]("dataset", frozenset({"rng"}), given=())


def data_directory() -> Path:
    """The directory in LIDFL_DATA, else ../shared/data if there is one, else ./data."""
    chosen = os.environ.get(DATA_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    shared = Path("../shared/data")
    return shared if shared.is_dir() else Path("data")


def locate(path: str) -> Path:
    """A user's path as it stands or, where nothing is there, inside the data directory."""
    here = Path(path).expanduser()
    inside = data_directory() / here
    return inside if inside.exists() and not here.exists() else here


def refuse_bomb(unpacked: int, packed: int, what: object) -> None:
    """Refuse what unpacks to far more than data does: a few megabytes can stand for a disk full of zeros."""
    if unpacked > max(SMALL_ENOUGH, MOST_RATIO * packed):
        raise LidflError(
            f"{what} would unpack from {packed:,} bytes to {unpacked:,}, which no data does; "
            "if it is meant, store it uncompressed"
        )


def draw_rows(available: int, wanted: int, rng: Generator) -> Indices:
    """`wanted` distinct rows at random in ascending order, or all of them if `wanted` is 0 or too many."""
    if wanted < 0:
        raise LidflError(f"images must be 0 (all) or more, not {wanted}")
    if wanted == 0 or wanted >= available:
        return np.arange(available)
    return np.sort(rng.choice(available, wanted, replace=False))


def take_rows(parts: Sequence[NDArray[np.uint8]], rows: Indices) -> NDArray[np.uint8]:
    """The ascending `rows` of the parts laid end to end, without joining the parts first."""
    starts = np.cumsum([0, *map(len, parts)])
    cuts = np.searchsorted(rows, starts)
    chosen = [part[rows[cuts[i] : cuts[i + 1]] - starts[i]] for i, part in enumerate(parts)]
    return np.concatenate(chosen)


def caution_about_classes(num_classes: int, count: int, source: object) -> None:
    """One line where labels look like numbers of something else than classes."""
    if num_classes >= MANY_CLASSES and count < FEW_IMAGES * num_classes:
        log.warning("%s has %d classes for %d images: are its labels classes, from 0?", source, num_classes, count)
