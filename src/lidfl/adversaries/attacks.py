"""What Byzantine clients send instead of their update (paper, appendix B.2). Simulator only.

An attack is one function. What it names among its parameters is what it is given:

| parameter | meaning |
|---|---|
| `own` | the updates that the Byzantine clients would send if they were honest, (attackers, dim) |
| `honest` | the updates of *all* honest clients from the same model, (num_honest, dim): an omniscient attacker |
| `start`, `preferred` | the model they were sent, and the one of the list that most honest clients prefer, (dim,) |
| `layers` | the tensors that a model is made of: names and shapes, in order |
| `attackers` | how many of them were sent this model |
| `aggregate` | the rule in use: from the updates of all, (clients, dim), to one update |
| `num_byzantine`, `num_classes`, `round_index` | numbers |
| `rng` | randomness for this round |
| `labels` | the training labels of Byzantine clients: such an attack poisons data, once, and then behaves |
| `images` | their images too, standardised; it then returns images and labels, or a `backdoors.Poison` |
| `owners` | whose each of these images is: attackers by number, from 0 |

It returns one row per attacker, or one vector that all of them send.
"""

from __future__ import annotations

from typing import Any

from numpy.random import Generator

from lidfl.lazily import torch
from lidfl.registry import Registry
from lidfl.types import Parameters, Updates

CONTEXT = {"own", "honest", "start", "preferred", "layers", "rng", "labels", "images", "owners"}
CONTEXT |= {"attackers", "num_byzantine", "num_classes", "round_index", "aggregate"}
attack: Registry[Any] = Registry("attack", frozenset(CONTEXT), given=())


@attack
def none(own: Updates) -> Updates:
    """No attack: Byzantine clients train and send as honest ones do."""
    return own


@attack
def label_flip(labels: torch.Tensor, num_classes: int) -> torch.Tensor:
    """LF: Byzantine clients train on flipped labels, y → M − 1 − y."""
    return num_classes - 1 - labels


@attack
def sign_flip(own: Updates) -> Updates:
    """SF: each sends the opposite of its update, −u."""
    return -own


@attack
def gauss(own: Updates, rng: Generator) -> Updates:
    """Gauss: each sends noise N(0, σ²I) with σ the standard deviation of its update's entries."""
    noise = torch.from_numpy(rng.standard_normal(tuple(own.shape), dtype="float32")).to(own)
    return noise * own.std(1, correction=0, keepdim=True)


@attack
def lie(honest: Updates, *, z: float = 20.0) -> Parameters:
    """LIE: the honest mean minus z honest standard deviations, ū − zσ, per coordinate (Baruch et al. 2019)."""
    mean = honest.mean(0)
    # Two passes over the rows: torch.std along the first axis is several times slower.
    variance = (honest - mean).square_().mean(0)
    return mean - z * variance.sqrt_()


@attack
def empire(honest: Updates, num_byzantine: int, *, scale: float = 1.1) -> Parameters:
    """EPR: the honest mean times −scale·k/(m − k), to turn the aggregate around (Xie et al. 2020)."""
    return honest.mean(0) * (-scale * len(honest) / num_byzantine)


@attack
def omniscient(honest: Updates, num_byzantine: int) -> Parameters:
    """OMN: (u·m − Σ honest)/|B| with u = −(honest mean), so that the mean of all is u (Blanchard et al. 2017)."""
    num_clients = len(honest) + num_byzantine
    target = -honest.mean(0)
    return (target * num_clients - honest.sum(0)) / num_byzantine


@attack
def ratchet(honest: Updates, start: Parameters, preferred: Parameters, *, back: float = 0.1) -> Parameters:
    """Ratchet: a copy of the model that honest clients prefer, moved back a little against their mean update.

    It is nearly as good as the model that it copies, so votes split; what it wins, it wins backwards.
    """
    return preferred - start - back * honest.mean(0)


from lidfl.adversaries import (  # noqa: E402, F401 - register more attacks
    against_lists,
    against_rules,
    backdoors,
    broken_updates,
)
