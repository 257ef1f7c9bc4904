"""How a node of a test does its work wrong; in real use nothing here is imported.

The node's config says how: `attack` names what it sends as its update, `vote-attack` how it votes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch

from lidfl.adversaries.attacks import attack
from lidfl.adversaries.vote_attacks import vote_attack, worst
from lidfl.errors import LidflError
from lidfl.flower.codec import Ask, Vector
from lidfl.flower.worker import Worker
from lidfl.learning.client import flushing_denormals, logits
from lidfl.registry import Bound, Registry
from lidfl.seeds import rng_for
from lidfl.types import Ballot

R = TypeVar("R")

ALONE = frozenset({"own", "start", "rng", "labels", "num_classes", "losses", "ranks"})
"""What a node can know by itself; an attack that asks for more needs accomplices who tell."""


class Liar(Worker):
    """A node that attacks with its update, with its ballot, or with both."""

    def __init__(self, task: Any, ask: Ask, node: Mapping[str, Any]) -> None:
        super().__init__(task, ask, node)
        self.attack = _alone(attack, str(node.get("attack", "none")))
        self.vote_attack = _alone(vote_attack, str(node.get("vote-attack", "none")))

    @flushing_denormals()
    def train(self, start: Vector) -> Vector:
        """The update to send: trained on poisoned labels, or forged from an honest one."""
        parameters = torch.from_numpy(start)
        if "labels" in self.attack.wants:
            images, labels = self.train_data
            num_classes = logits(self.network, parameters, images[:1]).shape[1]
            return self.update(start, self.attack(labels=labels, num_classes=num_classes))
        own = torch.from_numpy(super().train(start))[None]
        forged = self.attack(own=own, start=parameters, rng=self._rng("attack"))
        sent: Vector = forged.expand(1, -1)[0].numpy()
        return sent

    def ballot(self, losses: Sequence[float]) -> Ballot:
        """The ballot to cast; of what jurors are shown, the worst first, whichever attack it is."""
        if self.vote_attack.name == "none":
            return super().ballot(losses)
        table, ranks = np.array([losses]), self.ask.ranks
        if self.ask.kind == "choose":
            return worst(table, ranks)[0]
        return self.vote_attack(losses=table, ranks=ranks, rng=self._rng("vote"))[0]

    def _rng(self, purpose: str) -> np.random.Generator:
        return rng_for(self.ask.work.seed, purpose, self.ask.round_index, self.ask.client)


def check_attacks(update: str, vote: str) -> None:
    """Refuse, before anything is started, attacks that a node cannot carry out."""
    _alone(attack, update)
    _alone(vote_attack, vote)


def _alone(kind: Registry[R], spec: str) -> Bound[R]:
    """An attack that a node can carry out by itself."""
    bound = kind.resolve(spec)
    if bound.wants - ALONE:
        raise LidflError(f"'{spec}' needs accomplices; choose sign_flip, gauss or label_flip, worst or random")
    return bound
