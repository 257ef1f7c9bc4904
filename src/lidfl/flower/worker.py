"""One client's work on one request, honest or, in tests, not.

It is `lidfl.client`, with the batches that the simulator draws for the same client and round.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lidfl.attacks import attack
from lidfl.client import LocalTraining, candidate_losses, draw_batches, flushing_denormals, local_update, logits
from lidfl.elections import honest_ballots
from lidfl.errors import LidflError
from lidfl.flower.codec import Ask, Vector
from lidfl.parameters import Network
from lidfl.registry import Bound
from lidfl.seeds import rng_for, seed_for
from lidfl.types import Ballot, Parameters
from lidfl.vote_attacks import vote_attack, worst

ALONE = frozenset({"own", "start", "rng", "labels", "num_classes", "losses", "ranks"})
"""What a node can know by itself: attacks that ask for more need accomplices who tell."""


class Worker:
    """A node's model and data for the time of one message."""

    def __init__(self, task: Any, ask: Ask, node: Mapping[str, Any], *, testing: bool) -> None:
        self.task = task
        self.ask = ask
        self.network = Network(task.model())
        partition, partitions = int(node.get("partition-id", 0)), int(node.get("num-partitions", 1))
        self.train_data, self.validation = task.data(partition, partitions)
        self.attack = behaviour(attack.resolve, node.get("attack"), testing=testing)
        self.vote_attack = behaviour(vote_attack.resolve, node.get("vote-attack"), testing=testing)

    def loss(self, vector: Vector) -> float:
        """The validation loss of a model."""
        return judge(self.task, self.network, torch.from_numpy(vector), self.validation)

    @flushing_denormals()
    def train(self, start: Vector) -> Vector:
        """The update to send."""
        ask, work = self.ask, self.ask.work
        images, labels = self.train_data
        training = LocalTraining(work.steps, work.batch_size, work.learning_rate, work.momentum)
        rng = rng_for(work.seed, "batch", ask.round_index, ask.client)
        batches = torch.from_numpy(draw_batches(len(images), training, rng))
        parameters = torch.from_numpy(start)
        seed = seed_for(work.seed, "dropout", ask.round_index, ask.client)
        labels = self._poisoned(labels, parameters)
        update = local_update(self.network, parameters, images, labels, batches, training, seed)
        sent: Vector = self._forged(update, parameters).numpy()
        return sent

    def ballot(self, losses: Sequence[float]) -> Ballot:
        """The ballot to cast."""
        table, ranks = np.array([losses]), self.ask.ranks
        if self.vote_attack is None or self.vote_attack.name == "none":
            return honest_ballots(table, ranks)[0]
        if self.ask.kind == "choose":
            return worst(table, ranks)[0]
        cast: list[Ballot] = self.vote_attack(losses=table, ranks=ranks, rng=self._rng("vote"))
        return cast[0]

    def _poisoned(self, labels: Tensor, start: Parameters) -> Tensor:
        if self.attack is None or "labels" not in self.attack.wants:
            return labels
        classes = logits(self.network, start, self.train_data[0][:1]).shape[1]
        flipped: Tensor = self.attack(labels=labels, num_classes=classes)
        return flipped

    def _forged(self, update: Parameters, start: Parameters) -> Parameters:
        if self.attack is None or "labels" in self.attack.wants:
            return update
        forged: Tensor = self.attack(own=update[None], start=start, rng=self._rng("attack"))
        return forged.expand(1, -1)[0]

    def _rng(self, purpose: str) -> np.random.Generator:
        return rng_for(self.ask.work.seed, purpose, self.ask.round_index, self.ask.client)


@flushing_denormals()
def judge(task: Any, network: Network, parameters: Parameters, validation: tuple[Tensor, Tensor]) -> float:
    """The validation loss of a model by the task's own measure, or the mean cross-entropy; +inf if not finite."""
    if not hasattr(task, "loss"):
        return float(candidate_losses(network, parameters[None], *validation)[0])
    module = task.model()
    module.load_state_dict(network.state_dict(parameters))
    with torch.no_grad():
        value = float(task.loss(module.eval(), *validation))
    return value if np.isfinite(value) else float("inf")


def check_attacks(update: str, vote: str) -> None:
    """Refuse, before anything is started, attacks that a node cannot carry out."""
    behaviour(attack.resolve, update, testing=True)
    behaviour(vote_attack.resolve, vote, testing=True)


def behaviour(resolve: Any, spec: object, *, testing: bool) -> Bound[Any] | None:
    """How a node misbehaves, if it is told to and the app allows it."""
    if spec is None:
        return None
    if not testing:
        raise LidflError("a node's config names an attack; only client_app(task, testing=True) takes it")
    bound: Bound[Any] = resolve(str(spec))
    if bound.wants - ALONE:
        raise LidflError(f"'{spec}' needs accomplices; choose sign_flip, gauss or label_flip, worst or random")
    return bound
