"""The layers of a plain chain, and where their parameters stand in a model's vector."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from lidfl.learning.parameters import Network

PASSED = (
    nn.ReLU,
    nn.LeakyReLU,
    nn.MaxPool2d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool2d,
    nn.Flatten,
    nn.Dropout,
    nn.Identity,
)
"""Layers that pass a positive factor on, unit by unit."""


@dataclass(frozen=True)
class Layer:
    """Where the parameters of a layer stand in a model's vector."""

    weight: slice
    bias: slice | None
    units: int
    inputs: int
    """How many units it takes from."""

    @property
    def per_input(self) -> bool:
        """Whether each unit that it takes from feeds as many of its weights as any other."""
        return bool((self.weight.stop - self.weight.start) % (self.units * self.inputs) == 0)


def chain(network: Network) -> list[Layer]:
    """The layers of a plain chain of linear and convolutional layers; none if a network is anything else."""
    layers: list[Layer] = []
    taken = 0
    for part in network.module if isinstance(network.module, nn.Sequential) else [network.module]:
        if isinstance(part, nn.Linear) or (isinstance(part, nn.Conv2d) and part.groups == 1):
            layers.append(_layer(part, taken, inputs=layers[-1].units if layers else 1))
            taken = (layers[-1].bias or layers[-1].weight).stop
        elif not isinstance(part, PASSED):
            return []
    return layers if taken == network.dim and all(layer.per_input for layer in layers) else []


def _layer(part: nn.Linear | nn.Conv2d, start: int, inputs: int) -> Layer:
    units, size = part.weight.shape[0], part.weight.numel()
    bias = None if part.bias is None else slice(start + size, start + size + units)
    return Layer(slice(start, start + size), bias, units, inputs)
