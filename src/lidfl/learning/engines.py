"""How a set of local trainings is computed: one seam, several engines.

An engine is a function of `Jobs`, all of one shape, and returns their updates. Whichever is taken, the result is
that of `client.local_update`, job by job, within float32's rounding.

| engine | for | how |
|---|---|---|
| `linear` | softmax regression | the gradient in closed form, all jobs in one matrix product |
| `sparse` | softmax regression, images mostly of background | compiled C++ that multiplies what is inked alone |
| `native` | chains of convolutions, pooling, ReLU and linear layers | compiled C++, in `native/` |
| `vmap` | modules without random layers or running statistics | autograd, all jobs at once |
| `loop` | any module | one job after the other |
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from time import perf_counter
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from lidfl.learning.client import LocalTraining, Pull, local_update, logits
from lidfl.learning.native.build import NativeUnavailable, library
from lidfl.learning.native.engine import native, native_logits, runs
from lidfl.learning.native.sparse import background_of, is_worth_it, sparse, sparse_logits
from lidfl.learning.parameters import Network, linear_shape
from lidfl.types import Models, Parameters, Updates

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Jobs:
    """Local trainings of equal shape."""

    starts: Models
    """The model that each starts from, (jobs, dim)."""
    rows: Tensor
    """Row numbers of every step's batch, (jobs, steps, batch)."""
    dropout_seeds: tuple[int, ...]
    pull: Pull | None = None
    """The model that all of them are drawn to, if any."""

    def parts(self, size: int) -> "list[Jobs]":
        """The same jobs, so many at a time."""
        cuts = [slice(first, first + size) for first in range(0, len(self.starts), size)]
        return [Jobs(self.starts[cut], self.rows[cut], self.dropout_seeds[cut], self.pull) for cut in cuts]


WORTH_A_BATCH = 4
"""With fewer jobs than this, what vmap costs is more than it saves."""
BLOCK_PARAMETERS = 1 << 21
"""Parameters of all jobs that run at once: more do not fit the cache, and are slower than one by one."""

Engine: TypeAlias = Callable[[Jobs], Updates]
Build: TypeAlias = Callable[[Network, LocalTraining, Tensor, Tensor], Engine]


def loop(network: Network, training: LocalTraining, images: Tensor, labels: Tensor) -> Engine:
    """One job after the other, for any module."""

    def train(jobs: Jobs) -> Updates:
        updates = [
            local_update(network, start, images, labels, rows, training, seed, jobs.pull)
            for start, rows, seed in zip(jobs.starts, jobs.rows, jobs.dropout_seeds, strict=True)
        ]
        return torch.stack(updates)

    return train


def batched(network: Network, training: LocalTraining, images: Tensor, labels: Tensor) -> Engine:
    """Many jobs at once by vmap over the gradient of one job's loss; a few, or large models, by the loop."""

    def loss(weights: dict[str, Tensor], batch: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(network.module, weights, (batch,)), targets)

    gradient = vmap(grad(loss))
    alone = loop(network, training, images, labels)
    block = BLOCK_PARAMETERS // network.dim

    def train(jobs: Jobs) -> Updates:
        if min(block, len(jobs.starts)) < WORTH_A_BATCH:
            return alone(jobs)
        return torch.cat([at_once(part) for part in jobs.parts(block)])

    def at_once(jobs: Jobs) -> Updates:
        network.module.train()
        weights = {
            name: part.reshape(-1, *shape).clone()
            for part, (name, shape) in zip(
                torch.split(jobs.starts, network.sizes, dim=1), network.shapes.items(), strict=True
            )
        }
        velocities = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        anchor = network.unflatten(jobs.pull.anchor) if jobs.pull else {}
        for step in range(jobs.rows.shape[1]):
            rows = jobs.rows[:, step]
            gradients = gradient(weights, images[rows], labels[rows])
            for name, velocity in velocities.items():
                velocity.mul_(training.momentum).add_(gradients[name])
                if jobs.pull:
                    velocity.add_(weights[name] - anchor[name], alpha=jobs.pull.strength)
                weights[name].sub_(velocity, alpha=training.learning_rate)
        return torch.cat([weight.flatten(1) for weight in weights.values()], dim=1) - jobs.starts

    return train


def linear(network: Network, training: LocalTraining, images: Tensor, labels: Tensor) -> Engine:
    """All jobs at once for softmax regression, whose gradient is known: Xᵀ(softmax(XW) − Y)/b.

    The bias is one more row of W, on a feature that is always 1. W is kept as features × classes, which is what
    both products of a step want, both sides filled up to whole vector registers: features with 0, classes with a
    bias that gives them no probability. The velocity is kept times ℓ, which saves a pass.
    """
    classes, inputs = linear_shape(network)
    features = images.new_zeros(len(images), _filled(inputs + 1))
    features[:, :inputs] = images.flatten(1)
    features[:, inputs] = 1
    real = (..., slice(inputs + 1), slice(classes))  # what is no filler

    def pack(vectors: Models) -> Tensor:
        weight, bias = torch.split(vectors, [classes * inputs, classes], dim=1)
        packed = vectors.new_zeros(len(vectors), features.shape[1], _filled(classes))
        packed[:, :inputs, :classes] = weight.view(-1, classes, inputs).mT
        packed[:, inputs, :classes] = bias
        packed[:, inputs, classes:] = NO_PROBABILITY
        return packed

    def unpack(packed: Tensor) -> Updates:
        return torch.cat([packed[:, :inputs, :classes].mT.flatten(1), packed[:, inputs, :classes]], dim=1)

    def train(jobs: Jobs) -> Updates:
        start = pack(jobs.starts)
        weights, rows = start.clone(), jobs.rows.transpose(0, 1)  # steps first
        multiply: Callable[..., Tensor] = torch.bmm
        accumulate: Callable[..., Tensor] = Tensor.baddbmm_
        batches: Iterable[Tensor] = (F.embedding(step, features) for step in rows)  # faster than indexing
        if len(start) == 1:  # for one job plain matrices are faster than a batch of one, and all its images fit
            weights, rows = weights.squeeze(0), rows.squeeze(1)
            multiply, accumulate = torch.mm, Tensor.addmm_
            batches = F.embedding(rows, features).unbind(0)
        velocity = torch.zeros_like(weights)
        anchor = pack(jobs.pull.anchor[None]).squeeze(0) if jobs.pull else weights
        targets = labels[rows].unsqueeze(-1)
        minus_one = features.new_full(targets.shape[1:], -1)
        scale = training.learning_rate / rows.shape[-1]
        for batch, batch_targets in zip(batches, targets, strict=True):
            residuals = multiply(batch, weights).softmax(-1)
            residuals.scatter_add_(-1, batch_targets, minus_one)
            accumulate(velocity, batch.mT, residuals, beta=training.momentum, alpha=scale)
            if jobs.pull:
                velocity[real].add_(weights[real] - anchor[real], alpha=training.learning_rate * jobs.pull.strength)
            weights -= velocity
        return unpack(weights.view_as(start) - start)

    return train


def logits_for(network: Network, engine: str, images: Tensor) -> Callable[[Parameters, Tensor], Tensor]:
    """How a model's logits are computed; what a compiled engine trains, on such images, it evaluates too."""
    if engine == "native":
        return native_logits(network)
    if not is_linear(network.module):
        return partial(logits, network)
    if engine == "sparse":
        return sparse_logits(network, background_of(images), linear_logits(network))
    return linear_logits(network)


def linear_logits(network: Network) -> Callable[[Parameters, Tensor], Tensor]:
    """Logits of softmax regression, in one product over whole vector registers.

    They may have more columns than there are classes; those have no probability.
    """
    classes, inputs = linear_shape(network)
    filler = _filled(classes) - classes

    def filled_logits(vector: Parameters, images: Tensor) -> Tensor:
        weight, bias = torch.split(vector, [classes * inputs, classes])
        filled = F.pad(weight.view(classes, inputs), (0, 0, 0, filler))
        return F.linear(images.flatten(1), filled, F.pad(bias, (0, filler), value=NO_PROBABILITY))

    return filled_logits


NO_PROBABILITY = float("-inf")
"""As a logit."""
REGISTER = 16
"""Floats in the widest vector register."""


def _filled(size: int) -> int:
    """The next multiple of a register."""
    return -(-size // REGISTER) * REGISTER


def but_for_pulls(build: Build, otherwise: Build) -> Build:
    """An engine that knows no pull, and leaves jobs that are drawn to a second model to another."""

    def built(network: Network, training: LocalTraining, images: Tensor, labels: Tensor) -> Engine:
        engine = build(network, training, images, labels)
        other = cache(lambda: otherwise(network, training, images, labels))
        return lambda jobs: other()(jobs) if jobs.pull else engine(jobs)

    return built


ENGINES: dict[str, Build] = {
    "linear": linear,
    "sparse": but_for_pulls(sparse, linear),
    "native": but_for_pulls(native, loop),
    "vmap": batched,
    "loop": loop,
}
AGREEMENT = 1e-5
"""How far two engines' updates may lie apart, relative to the largest entry."""


def is_linear(module: nn.Module) -> bool:
    """Whether a module is softmax regression: a flattened image through one linear layer with bias."""
    layers = list(module) if isinstance(module, nn.Sequential) else []
    types = [type(layer) for layer in layers]
    return types == [nn.Flatten, nn.Linear] and layers[1].bias is not None


def candidate_engines(network: Network, images: Tensor) -> list[str]:
    """The engines that may be right for a network and such images, the surest choice first.

    Jobs that run at once cannot share a buffer that training writes to, so BatchNorm takes the loop.
    """
    if is_linear(network.module):
        return ["sparse", "linear"] if is_worth_it(images) else ["linear"]
    if runs(network, images.shape[1:]) and images.device.type == "cpu":
        return ["native", "loop", "vmap"] if _convolves(network.module) else ["native", "vmap", "loop"]
    return ["loop"] if network.untrained or network.counters else ["loop", "vmap"]


def _convolves(module: nn.Module) -> bool:
    """Whether there are convolutions, which vmap is slow at on a CPU."""
    return any(isinstance(part, nn.Conv2d) for part in module.modules())


COMPILED = {"sparse", "native"}
"""Engines that are compiled at first use; where that fails, the next candidate is taken."""


def engines_here(network: Network, images: Tensor) -> list[str]:
    """Those of them that work on this machine; if the surest cannot be compiled, that is told."""
    names = candidate_engines(network, images)
    if names[0] not in COMPILED:
        return names
    try:
        library()
    except NativeUnavailable as reason:
        log.info("%s; engine %s is taken, which is several times slower", reason, names[1])
        return names[1:2]
    return names


def fastest_engine(build: Callable[[str], Engine], names: list[str], jobs: Jobs) -> str:
    """The fastest engine in a short trial, among those that agree with the first."""
    if len(names) == 1:
        return names[0]
    expected, seconds = _trial(build(names[0]), jobs)
    best, times = names[0], {names[0]: seconds}
    for name in names[1:]:
        try:
            updates, seconds = _trial(build(name), jobs)
        except RuntimeError as error:  # vmap refuses what it cannot do, random layers among it
            log.info("engine %s cannot run this model: %s", name, str(error).splitlines()[0])
            continue
        if (updates - expected).abs().max() > AGREEMENT * expected.abs().max().clamp_min(1):
            log.info("engine %s gives other results with this model and is not used", name)
            continue
        times[name] = seconds
        best = min(times, key=lambda candidate: times[candidate])
    shown = ", ".join(f"{name} {value * 1000:.1f} ms" for name, value in times.items())
    log.info("engine %s is the fastest for this model: %s for %d clients", best, shown, len(jobs.starts))
    return best


def _trial(engine: Engine, jobs: Jobs) -> tuple[Updates, float]:
    """An engine's updates and its time, once it is warm."""
    engine(jobs)
    began = perf_counter()
    return engine(jobs), perf_counter() - began
