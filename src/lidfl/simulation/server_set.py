"""The clean images that a server holds itself, where a method needs some.

They are drawn from all clients' validation images, which nobody trains on and no attack touches.
"""

from functools import cached_property

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

from lidfl.learning.client import draw_batches, finite_or_inf, image_losses, local_update
from lidfl.seeds import rng_for
from lidfl.simulation.judging import Judges
from lidfl.simulation.workshop import Workshop
from lidfl.types import Models, Parameters


class ServerSet:
    """The server as one who has data of its own."""

    def __init__(self, workshop: Workshop, judges: Judges) -> None:
        self.workshop = workshop
        self.judges = judges
        self.experiment = workshop.experiment

    @cached_property
    def held(self) -> tuple[Tensor, Tensor]:
        """Its images and labels: as many as the settings say, or as a client has for validation on average."""
        shards, rng = self.workshop.data.validation, rng_for(self.experiment.seed, "server set")
        size = self.experiment.server_samples or max(1, round(float(np.mean(shards.sizes))))
        labels = shards.labels.cpu().numpy()
        rows = torch.from_numpy(draw_rows(labels, size, self.experiment.server_bias, rng)).to(shards.labels.device)
        return shards.images[rows], shards.labels[rows]

    def losses(self, models: Models) -> NDArray[np.float64]:
        """The mean loss of each model."""
        images, labels = self.held
        with self.judges.stopwatch.timed("evaluation"):
            every = (image_losses(self.judges.validation.logits(model, images), labels) for model in models)
            return finite_or_inf(torch.stack([losses.double().mean() for losses in every]))

    def trained(self, model: Parameters, round_index: int, part: int = 0) -> Parameters:
        """What a model gains by one local training, as a client makes it."""
        (images, labels), shop = self.held, self.workshop
        rng = rng_for(self.experiment.seed, "server batch", round_index, part)
        rows = draw_batches(len(labels), shop.work, rng)
        batches = torch.from_numpy(rows).to(labels.device)
        with self.judges.stopwatch.timed("training"):
            return local_update(shop.network, model, images, labels, batches, shop.work)


def draw_rows(labels: NDArray[np.int64], size: int, bias: float, rng: Generator) -> NDArray[np.int64]:
    """So many rows at random; with a bias, that share of them is of one class, which is drawn too.

    That is FLTrust's bias probability (Cao et al. 2021): without a bias each class has the share that it has.
    """
    size = min(size, len(labels))
    if bias == 0:
        return rng.choice(len(labels), size, replace=False)
    favoured = rng.choice(np.unique(labels))
    alike, others = np.flatnonzero(labels == favoured), np.flatnonzero(labels != favoured)
    count = min(round(bias * size), len(alike))
    rest = min(size - count, len(others))
    drawn = [rng.choice(alike, count, replace=False), rng.choice(others, rest, replace=False)]
    return np.concatenate(drawn)
