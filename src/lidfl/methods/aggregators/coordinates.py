"""Rules that look at each coordinate by itself."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lidfl.methods.aggregators.blocks import by_column, sound
from lidfl.methods.aggregators.limits import tolerable
from lidfl.methods.aggregators.paper import aggregator
from lidfl.registry import within
from lidfl.types import Parameters, Updates


@aggregator
@within(f=(-1, inf))
@sound
def trimmed_mean(updates: Updates, *, num_honest: int, f: int = -1) -> Parameters:
    """The mean of each coordinate without its f lowest and f highest values (Yin et al. 2018)."""
    n = len(updates)
    f = tolerable("trimmed_mean", n, num_honest, f)
    return by_column(updates, lambda values: values[:, f : n - f].mean(1, dtype=np.float64))


@aggregator
@within(f=(-1, inf))
@sound
def meamed(updates: Updates, *, num_honest: int, f: int = -1) -> Parameters:
    """MeaMed: the mean of each coordinate's n − f values nearest to its median (Xie et al. 2018).

    Of an even number, the median is the mean of the middle two; of two values equally far from it the lower counts.
    """
    f = tolerable("meamed", len(updates), num_honest, f)
    return by_column(updates, partial(mean_around_median, keep=len(updates) - f))


def median_of_sorted(values: NDArray[Any]) -> NDArray[np.float64]:
    """The median of each sorted row; of an even number, the mean of the middle two, whose sum may be too large."""
    count = values.shape[1]
    return np.asarray(values[:, (count - 1) // 2] / 2 + values[:, count // 2] / 2)


def mean_around_median(values: NDArray[Any], keep: int) -> NDArray[np.float64]:
    """The mean of the `keep` values of each sorted row that are nearest to the row's median.

    They are neighbours, so one of the values i and i + keep is among them, never both: the one that is nearer.
    """
    count = values.shape[1]
    drop = count - keep
    median = median_of_sorted(values)[:, None]
    with np.errstate(over="ignore"):  # what is infinitely far is dropped, or at both ends a tie
        lower_is_farther = median - values[:, :drop] > values[:, keep:] - median
    kept = np.ones(values.shape, dtype=bool)
    kept[:, :drop] &= ~lower_is_farther
    kept[:, keep:] &= lower_is_farther
    return np.asarray(np.where(kept, values, 0).sum(1, dtype=np.float64) / keep)
