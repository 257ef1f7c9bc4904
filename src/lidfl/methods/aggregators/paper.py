"""Aggregators: from the updates of many clients to one update, or to several groups of clients.

An aggregator takes the updates, one client a row, and returns one vector; or, where the honest clients may be a
minority, a partition of the rows into groups, each of which stands for one candidate: its mean. No rule weighs an
update by anything that its client says about itself.
"""

from __future__ import annotations

from math import inf
from typing import TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from lidfl.lazily import torch
from lidfl.methods.aggregators.blocks import (
    distances_to,
    gram,
    mean_of,
    norms,
    pairwise,
    shrinking,
    sound,
    sound_groups,
    weighted_mean,
)
from lidfl.methods.medians import coordinate_median
from lidfl.protocol import all_finite
from lidfl.registry import Registry, within
from lidfl.types import Parameters, Updates

Groups: TypeAlias = list[NDArray[np.int64]]
"""Disjoint groups of rows, in the order in which they were found."""

MOST_ITERATIONS = 10_000

aggregator: Registry[Parameters | Groups] = Registry(
    "aggregator", frozenset({"num_honest", "rng", "history"}), given=("updates",)
)


@aggregator
def fedavg(updates: Updates) -> Parameters:
    """The mean of all updates, each with the same weight (McMahan et al. 2017)."""
    mean = updates.mean(0)
    return mean if all_finite(mean) else finite_mean(updates)  # a row that is not finite shows in it


@sound
def finite_mean(updates: Updates) -> Parameters:
    """The mean of the finite rows, however large they are."""
    mean = updates.mean(0)
    return mean if all_finite(mean) else mean_of(updates, np.arange(len(updates)))


@aggregator
@within(iterations=(1, MOST_ITERATIONS))
@sound
def gm(updates: Updates, *, iterations: int = 1) -> Parameters:
    """Geometric median by Weiszfeld's iteration from the mean (Pillutla et al. 2022).

    z ← Σ wᵢ uᵢ / Σ wᵢ with wᵢ = 1 / max(10⁻⁵, ‖uᵢ − z‖); the paper takes one iteration.
    """
    weights = np.full(len(updates), 1 / len(updates))
    for _ in range(iterations):
        distances = np.sqrt(distances_to(updates, weighted_mean(updates, weights)))
        weights = 1 / np.maximum(1e-5, distances)
        weights /= weights.sum()
    return weighted_mean(updates, weights)


@aggregator
@within(bound=(0, inf))
@sound
def norm(updates: Updates, *, bound: float = 0.215771) -> Parameters:
    """The mean of the updates, each first scaled down to a norm of at most `bound` (Sun et al. 2019)."""
    return weighted_mean(updates, shrinking(norms(updates), bound) / len(updates))


@aggregator
@sound
def cwm(updates: Updates) -> Parameters:
    """The median of each coordinate (Yin et al. 2018); of an even number, the mean of the middle two."""
    return coordinate_median(updates)


@aggregator
@within(select=(1, inf))
@sound
def krum(updates: Updates, *, num_honest: int, select: int = 1) -> Parameters:
    """Krum: the update closest to its k − 2 nearest, or the mean of the `select` best (Blanchard et al. 2017).

    An update's score is the sum of the squared distances to them; k is the number of honest clients.
    """
    distances = np.sort(squared_distances(updates), axis=1)
    neighbours = max(1, num_honest - 2)
    scores = distances[:, 1 : neighbours + 1].sum(1)
    best = torch.from_numpy(np.argsort(scores, kind="stable")[:select]).to(updates.device)
    return fedavg(updates[best])


@aggregator
@within(radius=(0, inf), iterations=(1, MOST_ITERATIONS))
@sound
def cclip(updates: Updates, *, radius: float = 1.0, iterations: int = 3) -> Parameters:
    """Centred clipping: the centre plus the mean of the clipped differences, repeated (Karimireddy et al. 2021).

    c ← c + Σ sᵢ (uᵢ − c) / n with sᵢ = min(1, radius / ‖uᵢ − c‖), from c = 0.
    """
    centre = torch.zeros_like(updates[0])
    for _ in range(iterations):
        shares = shrinking(np.sqrt(distances_to(updates, centre)), radius) / len(updates)
        centre = weighted_mean(updates, shares) + float(1 - shares.sum()) * centre
    return centre


@aggregator
@sound_groups
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
@sound_groups
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
