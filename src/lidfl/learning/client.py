"""One client's work: train the model it was sent, judge the candidates it is shown.

Written for a single client, with autograd and no tricks: a remote client runs this, and the simulator's faster
engines are tested to agree with it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

from lidfl.learning.parameters import Network
from lidfl.types import Losses, Models, Parameters

Measure: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""From logits and labels to a number for each image: its loss, or whether it is right."""


@contextmanager
def flushing_denormals() -> Iterator[None]:
    """Treat denormal numbers as 0 for a while.

    Collapsed models are full of them, and processors are up to 40 times slower with them. It is a setting of the
    thread; the threads that torch starts while it holds have it too.
    """
    before = (torch.tensor(1e-40) * 1).item() == 0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


@dataclass(frozen=True)
class LocalTraining:
    """τ steps of SGD with momentum (paper, section 5.1): v ← μv + g, w ← w − ℓv, from v = 0."""

    steps: int
    batch_size: int
    learning_rate: float
    momentum: float


@dataclass(frozen=True)
class Pull:
    """What draws training to a second model: every gradient has λ(w − anchor) added (Ditto, Li et al. 2021)."""

    anchor: Parameters
    strength: float

    def added(self, gradients: Sequence[Tensor], weights: Sequence[Tensor], network: Network) -> tuple[Tensor, ...]:
        """The gradients of what a network trains, with the pull added."""
        anchor = network.unflatten(self.anchor)
        parts = zip(gradients, weights, (anchor[name] for name in network.trained), strict=True)
        return tuple(gradient + self.strength * (weight - target) for gradient, weight, target in parts)


def draw_batches(num_images: int, training: LocalTraining, rng: Generator) -> NDArray[np.int64]:
    """Row numbers of each step's batch, shape (steps, batch).

    Batches are drawn without replacement, in passes: each pass is a fresh shuffle cut into whole batches, what is
    left over waits for a later pass. A client with fewer images than a batch uses all of them in every step.
    """
    size = min(training.batch_size, num_images)
    per_pass = num_images // size
    passes = -(-training.steps // per_pass)
    rows = [rng.permutation(num_images)[: per_pass * size] for _ in range(passes)]
    return np.concatenate(rows).reshape(-1, size)[: training.steps]


def local_update(
    network: Network,
    start: Parameters,
    images: Tensor,
    labels: Tensor,
    batches: Tensor,
    training: LocalTraining,
    dropout_seed: int = 0,
    pull: Pull | None = None,
) -> Parameters:
    """u = w_τ − w_0 after training on the given batches (paper, section 2.2, step 2).

    `batches` holds row numbers, shape (steps, batch). `dropout_seed` makes models with dropout repeatable.
    """
    tensors = {name: _own_copy(part) for name, part in network.unflatten(start).items()}
    tensors |= {name: counter.clone() for name, counter in network.counters.items()}
    weights = [tensors[name].requires_grad_() for name in network.trained]
    velocities = [torch.zeros_like(weight) for weight in weights]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(dropout_seed)
        for rows in batches:
            logits = network.apply(tensors, images[rows], training=True)
            loss = F.cross_entropy(logits, labels[rows])
            gradients = torch.autograd.grad(loss, weights, materialize_grads=True)
            with torch.no_grad():
                gradients = pull.added(gradients, weights, network) if pull else gradients
                _step(weights, velocities, gradients, training)
            if not all(weight.isfinite().all() for weight in weights):
                break  # it stays so, and nobody takes such an update
    return network.flatten(tensors) - start


def _step(
    weights: Sequence[Tensor], velocities: Sequence[Tensor], gradients: Sequence[Tensor], training: LocalTraining
) -> None:
    """One step of gradient descent with momentum, in place."""
    for weight, velocity, gradient in zip(weights, velocities, gradients, strict=True):
        velocity.mul_(training.momentum).add_(gradient)
        weight.sub_(velocity, alpha=training.learning_rate)


def _own_copy(part: Tensor) -> Tensor:
    """A leaf of its own; convolution weights in the memory order that is fastest on CPUs.

    `contiguous(memory_format=…)` would leave 1-channel weights as they are; `clone` does not.
    """
    memory_format = torch.channels_last if part.dim() == 4 else torch.contiguous_format
    return part.detach().clone(memory_format=memory_format)


def candidate_losses(
    network: Network, candidates: Models, images: Tensor, labels: Tensor, measure: Measure | None = None
) -> Losses:
    """The mean validation loss of each candidate, +inf where it is not finite (paper, step 4)."""
    return finite_or_inf(candidate_values(network, candidates, images, labels, measure).mean(1))


def candidate_values(
    network: Network, candidates: Models, images: Tensor, labels: Tensor, measure: Measure | None = None
) -> Tensor:
    """The same image by image, (candidates, images)."""
    measure = measure or image_losses
    return torch.stack([measure(logits(network, candidate, images), labels).double() for candidate in candidates])


@torch.no_grad()
def logits(network: Network, vector: Parameters, images: Tensor) -> Tensor:
    """What a model says of each image, (images, classes)."""
    tensors = {name: _own_copy(part) for name, part in network.unflatten(vector).items()}
    chunk = 256 if network.convolves else 8192  # what fits the cache between layers
    return torch.cat([network.apply(tensors, some, training=False) for some in torch.split(images, chunk)])


def beyond_reach(models: Models, known: Models, reaches: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Of each model whether it lies further from the nearest known one than each reach, (reaches, models)."""
    distances = torch.stack([torch.linalg.vector_norm(known - model, dim=1).min() for model in models])
    far: NDArray[np.bool_] = ~(distances.double().cpu().numpy()[None] <= reaches[:, None])  # not a number is far
    return far


def image_losses(outputs: Tensor, labels: Tensor) -> Tensor:
    """The cross-entropy of each image, from a model's logits."""
    return F.cross_entropy(outputs, labels, reduction="none")


def image_hits(outputs: Tensor, labels: Tensor) -> Tensor:
    """Whether the class of each image is predicted right, from a model's logits."""
    return outputs.argmax(1) == labels


def finite_or_inf(losses: Tensor) -> NDArray[np.float64]:
    """Losses as numbers to compare: whatever is not finite never wins."""
    values: NDArray[np.float64] = losses.double().cpu().numpy()
    return np.where(np.isfinite(values), values, np.inf)
