"""A node's work on one message: `lidfl.learning.client`, with the batches that the server's seed tells it to draw.

The simulator draws the same batches for the same client and round, so both find the same updates.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lidfl.flower.codec import Ask, Vector
from lidfl.flower.own_training import own_update, trains_itself
from lidfl.learning.client import (
    LocalTraining,
    Measure,
    candidate_losses,
    candidate_values,
    draw_batches,
    flushing_denormals,
    local_update,
)
from lidfl.learning.judges import judge
from lidfl.learning.parameters import Network
from lidfl.methods.deploying import trained_alone
from lidfl.methods.elections import honest_ballots
from lidfl.seeds import rng_for, seed_for
from lidfl.types import Ballot, Models, Parameters


class Worker:
    """A node's model and data for the time of one message."""

    def __init__(self, task: Any, ask: Ask, node: Mapping[str, Any]) -> None:
        self.task = task
        self.ask = ask
        self.network = Network(task.model())
        partition, partitions = int(node.get("partition-id", 0)), int(node.get("num-partitions", 1))
        self.train_data, self.validation = task.data(partition, partitions)

    def loss(self, vector: Vector) -> float:
        """The validation loss of a model."""
        parameters = torch.from_numpy(vector)
        return judged_loss(self.task, self.network, parameters, self.validation, self.ask.work.judge)

    def train(self, start: Vector) -> Vector:
        """The update to send."""
        return self.update(start, self.train_data[1])

    @flushing_denormals()
    def update(self, start: Vector, labels: Tensor, purpose: str = "batch", part: int | None = None) -> Vector:
        """What training with these labels makes of a model; batches are drawn for a purpose and a part of it."""
        ask, work, images = self.ask, self.ask.work, self.train_data[0]
        place = ask.round_index if part is None else part
        training = LocalTraining(work.steps, work.batch_size, work.learning_rate, work.momentum)
        rng = rng_for(work.seed, purpose, place, ask.client)
        batches = torch.from_numpy(draw_batches(len(images), training, rng))
        seed = seed_for(work.seed, "dropout", place, ask.client)
        parameters = torch.from_numpy(start)
        if trains_itself(self.task):
            own = own_update(self.task, self.network, parameters, (images, labels), batches, training, seed)
            return np.asarray(own.numpy(), dtype=np.float32)
        update: Vector = local_update(
            self.network, parameters, images, labels, batches, training, dropout_seed=seed
        ).numpy()
        return update

    def ballot(self, losses: Sequence[float]) -> Ballot:
        """The ballot to cast."""
        return honest_ballots(np.array([losses]), self.ask.ranks)[0]

    # What a node can do with its own data when it makes its model of the list (`lidfl.methods.deploying.OwnData`)

    def losses(self, models: Models) -> NDArray[np.float64]:
        """Its judgement of each model."""
        return np.array([self.loss(row.numpy()) for row in models])

    def values(self, models: Models) -> NDArray[np.float64]:
        """The same image by image; a task's own loss tells no more than the mean, which then stands for each."""
        images, labels = self.validation
        if hasattr(self.task, "loss"):
            return np.repeat(self.losses(models)[:, None], len(labels), axis=1)
        found = candidate_values(self.network, models, images, labels, measure_named(self.ask.work.judge))
        return np.asarray(found.numpy())

    def alone(self, rounds: int) -> Parameters:
        """What it would have without the others."""
        return trained_alone(self, rounds)

    def trained(self, model: Parameters, part: int) -> Parameters:
        """A model after one more local training."""
        reached = model + torch.from_numpy(Worker.update(self, model.numpy(), self.train_data[1], "tune", part))
        return reached if bool(reached.isfinite().all()) else model

    def first(self) -> Parameters:
        """The model that everything began with: the server's, drawn from the same seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_for(self.ask.work.seed, "model"))
            return Network(self.task.model()).initial()


@flushing_denormals()
def judged_loss(
    task: Any, network: Network, parameters: Parameters, validation: tuple[Tensor, Tensor], spec: str
) -> float:
    """The validation loss of a model by the task's own measure, or by the judge named; +inf if not finite."""
    if not hasattr(task, "loss"):
        return float(candidate_losses(network, parameters[None], *validation, measure_named(spec))[0])
    module = task.model()
    module.load_state_dict(network.state_dict(parameters))
    with torch.no_grad():
        value = float(task.loss(module.eval(), *validation))
    return value if np.isfinite(value) else float("inf")


def measure_named(spec: str) -> Measure:
    """What a judge finds of each image; a network of one's own has a column a class."""
    rule = judge.resolve(spec)
    return lambda outputs, labels: rule(outputs, labels, num_classes=outputs.shape[1])
