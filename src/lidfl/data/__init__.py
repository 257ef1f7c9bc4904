"""Data sets by name, one file a source; how images are dealt (`partitions`) and what clients hold (`shards`)."""

from numpy.random import Generator

from lidfl.data import cifar10, digits, femnist, npz  # noqa: F401 - importing a source registers it
from lidfl.data.base import Dataset, data_directory, dataset

__all__ = ["Dataset", "data_directory", "dataset", "load_dataset"]


def load_dataset(spec: str, rng: Generator) -> Dataset:
    """The data set that a spec names, such as `digits`, `femnist:images=0` or `npz:path/to/file.npz`."""
    return dataset.resolve(spec)(rng=rng)
