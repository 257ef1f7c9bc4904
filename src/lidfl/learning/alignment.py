"""Undoes another thing that changes a model and not its function: the order of its hidden units.

A network whose hidden units were put into another order says the same of every image, so no voter can tell; but its
mean with a network in the old order is neither of them. Training moves a unit by less than units lie apart, so each
unit can be told by its incoming weights and put back, as Ainsworth, Hayase and Srinivasa (2023) match units to
merge models. Directions are compared and not lengths, which an attacker may have rescaled.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from lidfl.learning.layers import Layer
from lidfl.types import Parameters

ROUNDING = 1e-9
"""Two units that are one and the same may change places by rounding, and need not."""


def aligned(model: Parameters, parent: Parameters, layers: Sequence[Layer]) -> Parameters:
    """The same function with its hidden units in the order of the model that it was trained from.

    Layer by layer: once a layer is in order, so are the incoming weights of the next one. A model that is in order
    already keeps its bits, and is the same object.
    """
    for here, following in pairwise(layers):
        order = _order(_directions(parent, here), _directions(model, here))
        if order is not None:
            model = _reordered(model, order, here, following)
    return model


def _order(wanted: Tensor, found: Tensor) -> Tensor | None:
    """Which unit that was found belongs in each place, so that their cosines add up to most; None for no change."""
    cosines = wanted @ found.T
    if bool((cosines.argmax(1) == torch.arange(len(cosines), device=cosines.device)).all()):
        return None  # each unit is nearest to its own old self: no order is better
    if not bool(cosines.isfinite().all()):
        return None  # numbers that overflowed have no direction
    from scipy.optimize import linear_sum_assignment  # here, since it takes long to import

    _, order = linear_sum_assignment(cosines.cpu().numpy(), maximize=True)
    gain = float(cosines[range(len(order)), order].sum() - cosines.diagonal().sum())
    return torch.from_numpy(order).to(found.device) if gain > ROUNDING else None


def _directions(model: Parameters, layer: Layer) -> Tensor:
    """The incoming weights of each unit and its bias, as a direction; zero for a unit that has none."""
    incoming = model[layer.weight].double().view(layer.units, -1)
    if layer.bias is not None:
        incoming = torch.cat([incoming, model[layer.bias].double()[:, None]], dim=1)
    lengths: Tensor = incoming.norm(dim=1, keepdim=True)
    return incoming / lengths.clamp_min(1e-300)


def _reordered(model: Parameters, order: Tensor, here: Layer, following: Layer) -> Parameters:
    """A model with the units of a layer in another order, and what takes from them likewise."""
    moved = model.clone()
    moved[here.weight] = model[here.weight].view(here.units, -1)[order].flatten()
    if here.bias is not None:
        moved[here.bias] = model[here.bias][order]
    taking = model[following.weight].view(following.units, following.inputs, -1)
    moved[following.weight] = taking[:, order].flatten()
    return moved
