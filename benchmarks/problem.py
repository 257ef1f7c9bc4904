"""What all contestants are given: the same clients, images, model and settings.

The images are FEMNIST where lidfl finds it, else noise of the same shape: the time of a step does not depend on
what is in the pictures.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import torch
from torch import Tensor, nn

from lidfl.data import load_dataset
from lidfl.data.base import Dataset
from lidfl.data.federated import federate
from lidfl.data.partitions import split_clients
from lidfl.data.shards import FederatedData, Shards
from lidfl.data.splits import parse_split
from lidfl.errors import LidflError
from lidfl.seeds import rng_for, seed_for
from lidfl.settings.experiment import Experiment

NUM_IMAGES = 40_263
NUM_CLASSES = 62
SIDE = 28


@dataclass(frozen=True, eq=False)
class Problem:
    """One round's work for every client."""

    name: str
    train_images: list[Tensor]
    """Standardised float32, one tensor a client, (images, 1, 28, 28)."""
    train_labels: list[Tensor]
    validation_images: list[Tensor]
    validation_labels: list[Tensor]
    module: Callable[[], nn.Module]
    """A copy of the initialised model, in plain torch and in the order in which the paper writes it."""
    steps: int
    batch_size: int
    learning_rate: float
    momentum: float

    @property
    def num_clients(self) -> int:
        """How many clients there are."""
        return len(self.train_images)


def experiment(model: str, method: str = "fedavg") -> Experiment:
    """lidfl's settings for a problem: the paper's for FEMNIST, everybody honest."""
    return Experiment(dataset="femnist", model=model, method=method, byzantine_fraction=0.0, attack="none")


@lru_cache(maxsize=1)
def images() -> Dataset:
    """FEMNIST, or noise in its place."""
    rng = rng_for(experiment("lr").seed, "dataset")
    try:
        return load_dataset("femnist", rng)
    except LidflError:
        noise = rng.integers(0, 256, (NUM_IMAGES, 1, SIDE, SIDE), dtype=np.uint8)
        return Dataset(noise, rng.integers(0, NUM_CLASSES, NUM_IMAGES), NUM_CLASSES, "pixel")


def has_femnist() -> bool:
    """Whether the images are FEMNIST's; noise has no writers."""
    return images().writers is not None


@lru_cache(maxsize=1)
def federated_data(num_clients: int = 35) -> FederatedData:
    """The images, dealt and split as the paper has it."""
    settings, data = experiment("lr"), images()
    rng = rng_for(settings.seed, "partition")
    clients = split_clients(settings.partition, data.labels, None, num_clients, rng)
    return federate(data, clients, parse_split(settings.split), rng_for(settings.seed, "split"))


def lr_problem() -> Problem:
    """Softmax regression, 784 → 62, batches of 32."""
    return _problem("lr", _lr)


def cnn_problem() -> Problem:
    """The paper's CNN, batches of 64."""
    return _problem("cnn", _cnn)


PROBLEMS = {"lr": lr_problem, "cnn": cnn_problem}


def _problem(name: str, build: Callable[[], nn.Module]) -> Problem:
    data, settings = federated_data(), experiment(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_for(settings.seed, "model"))
        template = build()
    return Problem(
        name,
        *_by_client(data.train),
        *_by_client(data.validation),
        module=partial(deepcopy, template),
        steps=settings.local_steps,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        momentum=settings.momentum,
    )


def _by_client(shards: Shards) -> tuple[list[Tensor], list[Tensor]]:
    """Each client's images and labels, in memory of their own."""
    parts = [shards.of(client) for client in range(len(shards.sizes))]
    return [images.clone() for images, _ in parts], [labels.clone() for _, labels in parts]


def _lr() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, NUM_CLASSES))


def _cnn() -> nn.Module:
    """C(32)-R-M-C(64)-R-M-L(62): the parameters of lidfl's `cnn`, which pools before ReLU."""
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * 5 * 5, NUM_CLASSES)),
    )
