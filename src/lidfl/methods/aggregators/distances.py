"""Rules that go by who is close to whom."""

from __future__ import annotations

from functools import partial
from math import inf

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from lidfl.methods.aggregators.blocks import Square, by_column, distances_to, gram, mean_of, pairwise, sound
from lidfl.methods.aggregators.coordinates import mean_around_median
from lidfl.methods.aggregators.covers import first_independent, has_cover
from lidfl.methods.aggregators.limits import refuse_endless, tolerable
from lidfl.methods.aggregators.paper import aggregator, nearest
from lidfl.registry import within
from lidfl.types import Parameters, Updates


@aggregator
@within(f=(-1, inf), select=(0, inf))
@sound
def multi_krum(updates: Updates, *, num_honest: int, f: int = -1, select: int = 0) -> Parameters:
    """Multi-Krum: the mean of the n − f updates, or of `select`, with the lowest scores (Blanchard et al. 2017).

    An update's score is the sum of the squared distances to its n − f − 2 nearest, itself not counted.
    """
    n = len(updates)
    f = tolerable("multi_krum", n, num_honest, f)
    return mean_of(updates, krum_order(pairwise(gram(updates)), f)[: max(0, select) or n - f])


@aggregator
@within(f=(-1, inf))
@sound
def bulyan(updates: Updates, *, num_honest: int, f: int = -1) -> Parameters:
    """Bulyan: n − 2f updates that Krum picks one by one, then a mean around the median (El Mhamdi et al. 2018).

    Krum picks among the rows that are left. Of the θ = n − 2f picked, the θ − 2f values of each coordinate that are
    nearest to its median are averaged.
    """
    n = len(updates)
    f = tolerable("bulyan", n, num_honest, f)
    picked = krum_picks(pairwise(gram(updates)), f, count=n - 2 * f)
    return by_column(updates[np.sort(picked)], partial(mean_around_median, keep=n - 4 * f))


@aggregator
@within(f=(-1, inf))
@sound
def mda(updates: Updates, *, num_honest: int, f: int = -1) -> Parameters:
    """MDA: the mean of the n − f updates of the smallest diameter, exactly (El Mhamdi et al. 2021; Rousseeuw 1985).

    Whether a diameter will do is whether f rows cover all pairs that are farther apart; the smallest that does is
    found by bisection. Of several such sets it is one with central rows, those of a small sum of squared distances.
    """
    n = len(updates)
    refuse_endless("mda", n, num_honest, f)
    f = tolerable("mda", n, num_honest, f)
    distances = pairwise(gram(updates))
    central = np.argsort(distances.sum(1), kind="stable")
    distances = distances[np.ix_(central, central)]
    diameters = np.unique(distances)
    low, high = 0, len(diameters) - 1
    while low < high:
        middle = (low + high) // 2
        fits = has_cover(_farther(distances, diameters[middle]), (1 << n) - 1, f)
        low, high = (low, middle) if fits else (middle + 1, high)
    return mean_of(updates, central[first_independent(_farther(distances, diameters[low]), n - f)])


@aggregator
@within(trusted=(-1, inf), f=(-1, inf))
@sound
def monna(updates: Updates, *, num_honest: int, rng: Generator, trusted: int = -1, f: int = -1) -> Parameters:
    """MoNNA: the mean of the n − f updates nearest to a `trusted` one (Farhadkhani et al. 2023).

    The paper's client trusts itself. A server has nobody to trust: it draws a row each time, or takes one as told.
    """
    f = tolerable("monna", len(updates), num_honest, f)
    row = int(rng.integers(len(updates))) if trusted < 0 else min(trusted, len(updates) - 1)
    distances = distances_to(updates, updates[row])
    return mean_of(updates, nearest(distances, np.arange(len(updates)), len(updates) - f))


def krum_order(distances: Square, f: int) -> NDArray[np.int64]:
    """Rows by the sum of the squared distances to their n − f − 2 nearest others, to at least one.

    The sum of all distances decides between equals, such as two that are each other's only neighbour.
    """
    neighbours = max(1, len(distances) - f - 2)
    scores = np.sort(distances, axis=1)[:, 1 : neighbours + 1].sum(1)
    return np.lexsort((distances.sum(1), scores))


def krum_picks(distances: Square, f: int, count: int) -> NDArray[np.int64]:
    """So many rows, each the one that Krum picks among those that are left."""
    left = np.arange(len(distances))
    picked = []
    for _ in range(count):
        best = int(krum_order(distances[np.ix_(left, left)], f)[0])
        picked.append(left[best])
        left = np.delete(left, best)
    return np.array(picked)


def _farther(distances: Square, diameter: float) -> list[int]:
    """The pairs that are farther apart than a diameter, as a graph of bit masks."""
    masks = np.packbits(distances > diameter, axis=1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in masks]
