"""Attacks by those who have read this code: made against lists, votes and what honest clients do. Simulator only.

`trap`, `shift` and `seizure` try to freeze learning: models that look as good as others, or better, and that nobody
can train. With `inside` they stay within so many times the length of the shortest honest update, to slip through a
bound on how far a model may lie from the list, and creep on from round to round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import inf, prod, sqrt

from numpy.random import Generator

from lidfl.adversaries.attacks import attack, empire, gauss, lie, sign_flip
from lidfl.lazily import torch
from lidfl.registry import within
from lidfl.types import Parameters, Shapes, Updates

LARGEST = 3.4e38
"""Nearly the largest number that float32 holds."""


@attack
def huge(attackers: int, start: Parameters) -> Updates:
    """Huge: half of them send the largest finite numbers, half the smallest; sums and squares overflow."""
    signs = 1 - 2 * (torch.arange(attackers, device=start.device) % 2).to(start.dtype)
    return (signs * LARGEST)[:, None].expand(-1, len(start)).clone()


@attack
@within(scale=(1e-30, 1e30), inside=(0, inf))
def trap(
    honest: Updates, start: Parameters, layers: Shapes, *, scale: float = 10.0, inside: float = 0.0
) -> Parameters:
    """Trap: the honest mean with one layer times s and the next divided by s.

    Between ReLU layers that is the same function, so voters take it. The gradients of the one layer shrink by s
    and those of the other grow by s, so nobody can train it.
    """
    mean = honest.mean(0)
    if inside:
        scale = _largest(lambda s: rescaled(start + mean, layers, s) - start, honest, inside, 1.0, scale)
    return rescaled(start + mean, layers, scale) - start


@attack
def permute(honest: Updates, start: Parameters, layers: Shapes, rng: Generator) -> Parameters:
    """Permute: the honest mean with the first layer's hidden units in another order.

    That is the same function, so voters take it; but a mean of it and of models in the old order is none of them,
    so what clients train from it can no longer be averaged with the rest, unless balance puts the units back.
    """
    parts = [*torch.split(start + honest.mean(0), [prod(shape) for shape in layers.values()])]
    if len(parts) < 4:  # a weight and a bias before, and the weight and the bias that follow
        return honest.mean(0)
    first, _, second, *_ = layers.values()
    order = torch.from_numpy(rng.permutation(first[0])).to(start.device)
    parts[0] = parts[0].view(first[0], -1)[order].flatten()
    parts[1] = parts[1][order]
    parts[2] = parts[2].view(second[0], first[0], -1)[:, order].flatten()
    return torch.cat(parts) - start


@attack
@within(inside=(0, inf))
def shift(honest: Updates, layers: Shapes, *, by: float = 1e4, inside: float = 0.0) -> Parameters:
    """Shift: the honest mean plus one constant on all output biases, to which softmax is blind.

    Where parameters are compared by the largest of them all models look equal, and from about 10⁷ on logits lose
    their precision.
    """
    offset = torch.zeros_like(honest[0])
    offset[-prod(list(layers.values())[-1]) :] = 1
    mean = honest.mean(0)
    if inside:
        by = _largest(lambda b: mean + b * offset, honest, inside, 0.0, by)
    return mean + by * offset


@attack
@within(inside=(0, inf))
def seizure(honest: Updates, start: Parameters, layers: Shapes, *, inside: float = 0.0) -> Parameters:
    """Seizure: a network whose hidden units never fire; only its output biases learn, by what honest clients do.

    It has a lower loss than a network that was never trained, so it wins the first vote, and hidden units that
    never fire have no gradient.
    """
    mean = honest.mean(0)
    parts = list(torch.split(start + mean, [prod(shape) for shape in layers.values()]))
    hidden, output = _weights(layers)[:-1], _weights(layers)[-1]
    for place in hidden:
        parts[place] = torch.zeros_like(parts[place])
        parts[place + 1] = torch.full_like(parts[place + 1], -1)
    if hidden:
        parts[output] = torch.zeros_like(parts[output])
    dead = torch.cat(parts) - start - mean
    share = _largest(lambda part: mean + part * dead, honest, inside, 0.0, 1.0) if inside else 1.0
    return mean + share * dead


@attack
@within(spread=(0, inf))
def clones(
    honest: Updates,
    start: Parameters,
    preferred: Parameters,
    attackers: int,
    rng: Generator,
    *,
    spread: float = 1e-2,
) -> Updates:
    """Clones: the model that honest clients prefer, many times, each with a little noise: votes split."""
    noise = torch.from_numpy(rng.standard_normal((attackers, len(start)), dtype="float32")).to(start)
    length = spread * float(torch.linalg.vector_norm(honest.mean(0))) / sqrt(len(start))
    return (preferred - start) + length * noise


@attack
@within(every=(1, inf))
def switch(
    own: Updates,
    honest: Updates,
    start: Parameters,
    layers: Shapes,
    num_byzantine: int,
    rng: Generator,
    round_index: int,
    *,
    every: int = 20,
) -> Updates:
    """Switch: another attack every so many rounds: sign flip, LIE, trap, Gauss, empire."""
    turns: Sequence[Callable[[], Updates]] = (
        lambda: sign_flip(own),
        lambda: lie(honest),
        lambda: trap(honest, start, layers),
        lambda: gauss(own, rng),
        lambda: empire(honest, num_byzantine),
    )
    return turns[round_index // every % len(turns)]()


def rescaled(model: Parameters, layers: Shapes, scale: float) -> Parameters:
    """A model with its first layer times a number and the second divided by it; as it is if there is one layer."""
    parts = list(torch.split(model, [prod(shape) for shape in layers.values()]))
    for first, second in list(pairwise(_weights(layers)))[:1]:
        parts[first] = parts[first] * scale
        parts[first + 1] = parts[first + 1] * scale
        parts[second] = parts[second] / scale
    return torch.cat(parts)


def _weights(layers: Shapes) -> list[int]:
    """Where the weights of layers with biases stand among all tensors."""
    shapes = list(layers.values())
    return [
        place for place, (shape, bias) in enumerate(pairwise(shapes)) if len(shape) > 1 and tuple(bias) == shape[:1]
    ]


def _largest(
    update: Callable[[float], Parameters], honest: Updates, inside: float, low: float, high: float
) -> float:
    """The largest strength, by bisection, with which an update stays inside the bound."""
    bound = inside * float(torch.linalg.vector_norm(honest, dim=1).min())
    if float(torch.linalg.vector_norm(update(high))) <= bound:
        return high
    for _ in range(40):
        middle = (low + high) / 2
        fits = float(torch.linalg.vector_norm(update(middle))) <= bound
        low, high = (middle, high) if fits else (low, middle)
    return low
