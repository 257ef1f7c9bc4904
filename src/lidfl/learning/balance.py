"""Undoes what changes a model and not its function: the balance of its hidden units, the offset of its outputs.

Two things about a network of ReLU layers under softmax are free, besides the order of its units (see alignment).
A hidden unit may have its incoming weights and bias times s and its outgoing weights divided by s; and all classes
may have the same vector added to their weights and the same number to their biases. No voter can see either, and
both can make a model that nobody can train.

Gradient descent leaves both alone. For each hidden unit ‖incoming‖² − ‖outgoing‖² stands still under gradient flow
(Du, Hu and Lee 2018), and since a softmax's gradients sum to zero over classes, so does the mean of the last layer
over classes. So a model can be brought back to the values that the first model had: honest training is hardly moved
by that, and what an attacker rescaled or shifted is undone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from lidfl.learning.alignment import aligned
from lidfl.learning.layers import Layer, chain
from lidfl.learning.parameters import Network
from lidfl.types import Models, Parameters

SWEEPS = 30
SETTLED = 1e-4
"""A rescaling by less than this share is rounding, or honest training, and is left alone."""


@dataclass(frozen=True)
class Invariants:
    """What training leaves alone: for each hidden layer a number a unit, and the mean of the last layer."""

    balances: tuple[Tensor, ...]
    offset: Tensor
    bias_offset: Tensor | None


class Balance:
    """Brings models back to the balance and the offset of the first one, and units into their parents' order."""

    def __init__(self, layers: Sequence[Layer], first: Parameters) -> None:
        self.layers = layers
        self.first = _invariants(layers, first.double())

    def __call__(self, models: Models, parents: Models | None = None) -> Models:
        """The same functions, one a row, with the first model's balance and offset.

        Where parents are given, the models that these were trained from, hidden units are in their order. A mean of
        models whose units are in order needs none.
        """
        if parents is not None:
            pairs = zip(models, parents, strict=True)
            models = torch.stack([aligned(model, parent, self.layers) for model, parent in pairs])
        return torch.stack([self._one(model) for model in models]) if len(models) else models

    def _one(self, model: Parameters) -> Parameters:
        """Unit by unit and layer by layer, until nothing moves any more; what was never moved keeps its bits."""
        wide, moved = model.double(), False
        for _ in range(SWEEPS):
            changes = [self._rebalance(wide, place) for place in range(len(self.layers) - 1)]
            changes.append(self._centre(wide))
            if max(changes) < SETTLED:
                break
            moved = True
        balanced = wide.to(model.dtype)
        return balanced if moved and bool(balanced.isfinite().all()) else model

    def _centre(self, model: Tensor) -> float:
        """Give the last layer the first model's mean over classes; how far it was away, by its own scale."""
        last = self.layers[-1]
        weight = model[last.weight].view(last.units, -1)
        offset = weight.mean(0) - self.first.offset
        weight -= offset
        away = float(offset.abs().max() / weight.abs().max().clamp_min(1e-30))
        if last.bias is not None and self.first.bias_offset is not None:
            bias_offset = model[last.bias].mean() - self.first.bias_offset
            model[last.bias] -= bias_offset
            away = max(away, float(bias_offset.abs()))
        return away

    def _rebalance(self, model: Tensor, place: int) -> float:
        """Give each unit of a hidden layer its first balance; by what share the largest change was.

        With a = ‖incoming‖² and b = ‖outgoing‖² the factor s solves s²a − b/s² = d. A unit without incoming or
        outgoing weights has no balance, and is left alone.
        """
        here, following = self.layers[place], self.layers[place + 1]
        a, b = _incoming(model, here), _outgoing(model, following)
        d = self.first.balances[place]
        root = (d.square() + 4 * a * b).sqrt()
        squared = torch.where(d >= 0, (d + root) / (2 * a), 2 * b / (root - d))
        usable = (a > 0) & (b > 0) & squared.isfinite() & (squared > 0)
        factor = torch.where(usable, squared, 1.0).sqrt()
        model[here.weight].view(here.units, -1).mul_(factor[:, None])
        if here.bias is not None:
            model[here.bias].mul_(factor)
        model[following.weight].view(following.units, following.inputs, -1).div_(factor[:, None])
        return float((factor - 1).abs().max())


def balance_of(network: Network, first: Parameters) -> Balance | None:
    """The balance of a network, if it is a chain of layers whose free factors are known; else None."""
    layers = chain(network)
    return Balance(layers, first) if layers else None


def _invariants(layers: Sequence[Layer], model: Tensor) -> Invariants:
    last = layers[-1]
    balances = [_incoming(model, here) - _outgoing(model, after) for here, after in pairwise(layers)]
    offset = model[last.weight].view(last.units, -1).mean(0)
    return Invariants(tuple(balances), offset, None if last.bias is None else model[last.bias].mean())


def _incoming(model: Tensor, layer: Layer) -> Tensor:
    """‖incoming‖² of each unit of a layer, its bias included."""
    total = model[layer.weight].view(layer.units, -1).square().sum(1)
    return total if layer.bias is None else total + model[layer.bias].square()


def _outgoing(model: Tensor, following: Layer) -> Tensor:
    """‖outgoing‖² of each unit of the layer before."""
    return model[following.weight].view(following.units, following.inputs, -1).square().sum((0, 2))
