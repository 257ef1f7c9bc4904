"""Handwritten digits that come with scikit-learn: no file and no network needed."""

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lidfl.data.base import Dataset, dataset

FILE = Path("datasets", "data", "digits.csv.gz")
"""Where scikit-learn keeps them: a line an image, its 64 grey levels and its class."""


@dataset
def digits() -> Dataset:
    """1,797 handwritten digits of 8x8 pixels, embedded in scikit-learn."""
    images, labels = _read()
    scaled = (images / 16).astype(np.float32)  # grey levels 0 … 16
    return Dataset(scaled[:, np.newaxis], labels.astype(np.int64), 10, "pixel")


@lru_cache(maxsize=1)
def _read() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Images and classes, straight from the file: scikit-learn itself takes a second or two to import.

    They are read once a process, and nobody is handed them as they are: a sweep plays many runs on them.
    """
    spec = find_spec("sklearn")
    folder = Path(spec.origin).parent if spec and spec.origin else Path()
    if (folder / FILE).exists():
        lines = np.loadtxt(folder / FILE, delimiter=",")
        return lines[:, :-1].reshape(-1, 8, 8), lines[:, -1].astype(np.int64)
    from sklearn.datasets import load_digits  # a version that keeps them elsewhere

    found = load_digits()
    return found.images, found.target
