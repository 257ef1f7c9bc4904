"""Handwritten digits that come with scikit-learn: no file and no network needed."""

import numpy as np

from lidfl.datasets.base import Dataset, dataset


@dataset
def digits() -> Dataset:
    """1,797 handwritten digits of 8x8 pixels, embedded in scikit-learn."""
    from sklearn.datasets import load_digits  # here, because it takes a second to import

    bunch = load_digits()
    images = (bunch.images / 16).astype(np.float32)  # grey levels 0 … 16
    return Dataset(images[:, np.newaxis], bunch.target.astype(np.int64), 10, "pixel")
