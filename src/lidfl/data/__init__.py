"""Data sets by name, one file a source; how images are dealt (`partitions`) and what clients hold (`shards`)."""

from collections.abc import Callable

from numpy.random import Generator

from lidfl.data import cifar, digits, femnist, idx, npz, table  # noqa: F401 - importing a source registers it
from lidfl.data.base import Dataset, Given, data_directory, dataset, locate

__all__ = ["Dataset", "data_directory", "dataset", "dealt_by_itself", "load_dataset"]


def load_dataset(spec: str, rng: Generator) -> Dataset:
    """The data set that a spec names, such as `digits`, `femnist:images=0` or `npz:path/to/file.npz`."""
    return dataset.resolve(spec)(rng=rng)


def dealt_by_itself(spec: str) -> dict[str, str | int]:
    """The settings that follow if the data itself names its clients, as an .npz with an array `clients` does."""
    if spec in dataset.objects:
        return _named_clients(dataset.objects[spec])
    if spec.partition(":")[0] != "npz":
        return {}
    count = npz.count_clients(locate(dataset.resolve(spec).options["path"]))
    return {"partition": "by_client", "num_clients": count} if count else {}


def _named_clients(load: Callable[..., Dataset]) -> dict[str, str | int]:
    """The same for data that was handed over in Python; what a function would load is not known yet."""
    clients = load.data.clients if isinstance(load, Given) else None
    return {} if clients is None else {"partition": "by_client", "num_clients": int(clients.max()) + 1}
