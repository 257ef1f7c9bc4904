"""How a set of local trainings is computed: one seam, several engines.

An engine is a function of `Jobs`, all of one shape, and returns their updates. Whichever is taken, the
result is that of `client.local_update`, job by job, within float32's rounding.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn

from lidfl.client import LocalTraining, local_update
from lidfl.parameters import Network
from lidfl.types import Updates


@dataclass(frozen=True)
class Jobs:
    """Local trainings of equal shape."""

    starts: Updates
    """The model that each starts from, (jobs, dim)."""
    rows: Tensor
    """Row numbers of every step's batch, (jobs, steps, batch)."""
    dropout_seeds: tuple[int, ...]


Engine: TypeAlias = Callable[[Jobs], Updates]


def engine_for(network: Network, training: LocalTraining, images: Tensor, labels: Tensor) -> Engine:
    """The fastest engine for a network over the given training images."""
    if is_linear(network.module):
        return linear_engine(training, images, labels)
    return loop_engine(network, training, images, labels)


def loop_engine(network: Network, training: LocalTraining, images: Tensor, labels: Tensor) -> Engine:
    """One job after the other, for any module."""

    def train(jobs: Jobs) -> Updates:
        updates = [
            local_update(network, start, images, labels, rows, training, seed)
            for start, rows, seed in zip(jobs.starts, jobs.rows, jobs.dropout_seeds, strict=True)
        ]
        return torch.stack(updates)

    return train


def is_linear(module: nn.Module) -> bool:
    """Whether a module is softmax regression: a flattened image through one linear layer with bias."""
    layers = list(module) if isinstance(module, nn.Sequential) else []
    types = [type(layer) for layer in layers]
    return types == [nn.Flatten, nn.Linear] and layers[1].bias is not None


def linear_engine(training: LocalTraining, images: Tensor, labels: Tensor) -> Engine:
    """All jobs at once for softmax regression, whose gradient is known: Xᵀ(softmax(XW) − Y)/b.

    The bias is one more row of W, on a feature that is always 1. W is kept as features × classes, which is what
    both products of a step want, and the velocity is kept times ℓ, which saves a pass.
    """
    ones = torch.ones(len(images), 1, dtype=images.dtype, device=images.device)
    features = torch.cat([images.flatten(1), ones], dim=1)
    inputs = features.shape[1] - 1

    def pack(vectors: Updates) -> Tensor:
        classes = vectors.shape[1] // (inputs + 1)
        weight, bias = torch.split(vectors, [classes * inputs, classes], dim=1)
        return torch.cat([weight.view(-1, classes, inputs).transpose(1, 2), bias.unsqueeze(1)], dim=1)

    def unpack(packed: Tensor) -> Updates:
        return torch.cat([packed[:, :inputs].transpose(1, 2).flatten(1), packed[:, inputs]], dim=1)

    def train(jobs: Jobs) -> Updates:
        start = pack(jobs.starts)
        weights, velocity = start.clone(), torch.zeros_like(start)
        targets = labels[jobs.rows].unsqueeze(3)
        batch = jobs.rows.shape[2]
        minus_one = features.new_full((len(start), batch, 1), -1)
        for step in range(jobs.rows.shape[1]):
            batch_features = features[jobs.rows[:, step]]
            residuals = torch.bmm(batch_features, weights).softmax(2)
            residuals.scatter_add_(2, targets[:, step], minus_one)
            scale = training.learning_rate / batch
            velocity.baddbmm_(batch_features.transpose(1, 2), residuals, beta=training.momentum, alpha=scale)
            weights -= velocity
        return unpack(weights - start)

    return train
