"""Aggregators: from the updates of many clients to one update, or to several groups of clients.

An aggregator takes the updates, one client a row, and returns one vector; or, where the honest clients may be a
minority, a partition of the rows into groups, each of which stands for one candidate: its mean. No rule weighs an
update by anything that its client says about itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from lidfl.lazily import torch
from lidfl.methods.aggregators.blocks import gram, pairwise
from lidfl.methods.medians import coordinate_median
from lidfl.protocol import all_finite
from lidfl.registry import Registry
from lidfl.types import Parameters, Updates

Groups: TypeAlias = list[NDArray[np.int64]]
"""Disjoint groups of rows, in the order in which they were found."""

P = ParamSpec("P")

aggregator: Registry[Parameters | Groups] = Registry(
    "aggregator", frozenset({"num_honest", "rng", "history"}), given=("updates",)
)


def finitely(rule: Callable[P, Parameters]) -> Callable[P, Parameters]:
    """A rule whose result is finite for all finite updates: where float32 overflows, it counts in float64.

    The largest updates that can be sent have squares, and even sums, that float32 does not hold. What does not fit
    in the end is cut off at the largest number that does.
    """

    @wraps(rule)
    def in_range(*arguments: P.args, **options: P.kwargs) -> Parameters:
        outcome = rule(*arguments, **options)
        if all_finite(outcome):
            return outcome
        updates, *others = arguments
        assert isinstance(updates, torch.Tensor)
        largest = torch.finfo(updates.dtype).max
        wide = rule(updates.double(), *others, **options)  # type: ignore[arg-type]
        return wide.clamp(-largest, largest).to(updates.dtype)

    return in_range


@aggregator
@finitely
def fedavg(updates: Updates) -> Parameters:
    """The mean of all updates, each with the same weight (McMahan et al. 2017)."""
    return updates.mean(0)


@aggregator
@finitely
def gm(updates: Updates, *, iterations: int = 1) -> Parameters:
    """Geometric median by Weiszfeld's iteration from the mean (Pillutla et al. 2022).

    z ← Σ wᵢ uᵢ / Σ wᵢ with wᵢ = 1 / max(10⁻⁵, ‖uᵢ − z‖); the paper takes one iteration.
    """
    centre = updates.mean(0)
    for _ in range(iterations):
        weights = norms(updates - centre).clamp_min(1e-5).reciprocal()
        centre = torch.mv(updates.T, (weights / weights.sum()).to(updates.dtype))
    return centre


@aggregator
@finitely
def norm(updates: Updates, *, bound: float = 0.215771) -> Parameters:
    """The mean of the updates, each first scaled down to a norm of at most `bound` (Sun et al. 2019)."""
    scale = (bound / norms(updates)).clamp_max(1)
    return torch.mv(updates.T, (scale / len(updates)).to(updates.dtype))


@aggregator
@finitely
def cwm(updates: Updates) -> Parameters:
    """The median of each coordinate (Yin et al. 2018); of an even number, the mean of the middle two."""
    return coordinate_median(updates)


@aggregator
@finitely
def krum(updates: Updates, *, num_honest: int, select: int = 1) -> Parameters:
    """Krum: the update closest to its k − 2 nearest, or the mean of the `select` best (Blanchard et al. 2017).

    An update's score is the sum of the squared distances to them; k is the number of honest clients.
    """
    distances = np.sort(squared_distances(updates), axis=1)
    neighbours = max(1, num_honest - 2)
    scores = distances[:, 1 : neighbours + 1].sum(1)
    best = torch.from_numpy(np.argsort(scores, kind="stable")[:select]).to(updates.device)
    return updates[best].mean(0)


@aggregator
@finitely
def cclip(updates: Updates, *, radius: float = 1.0, iterations: int = 3) -> Parameters:
    """Centred clipping: the centre plus the mean of the clipped differences, repeated (Karimireddy et al. 2021)."""
    centre = torch.zeros_like(updates[0])
    for _ in range(iterations):
        centre = centre + norm(updates - centre, bound=radius)
    return centre


@aggregator
def rknn(updates: Updates, *, num_honest: int, rng: Generator) -> Groups:
    """Random k nearest neighbours: a random update and its k nearest, then again among the rest.

    The paper's algorithm 2; k is the number of honest clients, and the last group may be smaller.
    """
    distances = squared_distances(updates)
    left = np.arange(len(updates))
    groups = []
    while len(left) > 0:
        start = rng.choice(left)
        group = nearest(distances[start], left, num_honest)
        groups.append(group)
        left = np.setdiff1d(left, group)
    return groups


@aggregator
def meb(updates: Updates, *, num_honest: int) -> Groups:
    """Minimum enclosing balls: the k updates in the tightest ball around one of them, then again among the rest.

    The paper's algorithm 3; a ball's radius is the distance from its centre to the k-th nearest update.
    """
    distances = squared_distances(updates)
    left = np.arange(len(updates))
    groups = []
    while len(left) > 0:
        size = min(num_honest, len(left))
        radii = np.partition(distances[np.ix_(left, left)], size - 1, axis=1)[:, size - 1]
        group = nearest(distances[left[radii.argmin()]], left, size)
        groups.append(group)
        left = np.setdiff1d(left, group)
    return groups


def norms(updates: Updates) -> torch.Tensor:
    """‖uᵢ‖ of each row; where the squares of exploded updates overflow, in double precision."""
    lengths: torch.Tensor = torch.linalg.vector_norm(updates, dim=1)
    return lengths if lengths.isfinite().all() else torch.linalg.vector_norm(updates.double(), dim=1)


def nearest(distances: NDArray[np.float64], among: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The `count` rows of `among` with the smallest distances, ties to the lowest row."""
    return among[np.argsort(distances[among], kind="stable")[:count]]


def squared_distances(updates: Updates) -> NDArray[np.float64]:
    """‖uᵢ − uⱼ‖² = ‖uᵢ‖² + ‖uⱼ‖² − 2uᵢ·uⱼ for all pairs, from one Gram matrix.

    In double precision neither do the squares of exploded float32 updates overflow, nor do the distances of close
    ones cancel.
    """
    return pairwise(gram(updates))


def means_and_members(outcome: Parameters | Groups, updates: Updates) -> list[tuple[Parameters, NDArray[np.int64]]]:
    """An aggregator's outcome as candidates: each a vector, and the rows that went into it."""
    if isinstance(outcome, torch.Tensor):
        return [(outcome, np.arange(len(updates)))]
    return [(fedavg(updates[torch.from_numpy(rows).to(updates.device)]), rows) for rows in outcome]
