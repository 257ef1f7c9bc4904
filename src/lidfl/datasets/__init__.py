"""Data sets by name, one file per source, and how their images reach the clients (`federated`)."""

from numpy.random import Generator

from lidfl.datasets import cifar10, digits, femnist, npz  # noqa: F401 - importing a source registers it
from lidfl.datasets.base import Dataset, data_directory, dataset

__all__ = ["Dataset", "data_directory", "dataset", "load"]


def load(spec: str, rng: Generator) -> Dataset:
    """The data set that a spec names, such as `digits`, `femnist:images=0` or `npz:path/to/file.npz`."""
    return dataset.resolve(spec)(rng=rng)
