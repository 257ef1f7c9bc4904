"""Pre-aggregators: what is done to updates before an aggregator sees them, as in `nnm|bucketing:size=2|krum`.

A pre-aggregator is one function of the updates. It returns weights, one row for each new update: how much of each
old one it holds. Weights are from 0, and no row sums to more than 1.
"""

from __future__ import annotations

from math import inf

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from lidfl.methods.aggregators.blocks import gram, norms, pairwise, shrinking
from lidfl.methods.aggregators.limits import tolerable
from lidfl.registry import Registry, within
from lidfl.types import Updates

Weights = NDArray[np.float64]
"""Shape (new updates, updates)."""

preaggregator: Registry[Weights] = Registry("pre-aggregator", frozenset({"num_honest", "rng"}), given=("updates",))


@preaggregator
@within(f=(-1, inf))
def nnm(updates: Updates, *, num_honest: int, f: int = -1) -> Weights:
    """Nearest neighbour mixing: each update becomes the mean of its n − f nearest (Allouah et al. 2023)."""
    n = len(updates)
    keep = n - tolerable("nnm", n, num_honest, f)
    near = np.argsort(pairwise(gram(updates)), axis=1, kind="stable")[:, :keep]
    weights = np.zeros((n, n))
    np.put_along_axis(weights, near, 1 / keep, axis=1)
    return weights


@preaggregator
@within(size=(1, inf))
def bucketing(updates: Updates, *, rng: Generator, size: int = 2) -> Weights:
    """Bucketing: in random order, means of `size` updates each, the last of the rest (Karimireddy et al. 2022)."""
    n = len(updates)
    size = min(size, n)
    bucket = np.empty(n, dtype=np.int64)
    bucket[rng.permutation(n)] = np.arange(n) // size
    members = bucket == np.arange(-(-n // size))[:, None]
    return np.asarray(members / members.sum(1, keepdims=True))


@preaggregator
@within(radius=(0, inf))
def clip(updates: Updates, *, radius: float = 1.0) -> Weights:
    """Clipping: each update scaled by min(1, radius/‖uᵢ‖) (Sun et al. 2019)."""
    return _scaled_to(updates, radius)


@preaggregator
@within(f=(-1, inf))
def arc(updates: Updates, *, num_honest: int, f: int = -1) -> Weights:
    """ARC, adaptive clipping: the ⌊2f(n − f)/n⌋ longest updates scaled down to the next (Allouah et al. 2025)."""
    n = len(updates)
    f = tolerable("arc", n, num_honest, f)
    lengths = np.sort(norms(updates))
    return _scaled_to(updates, float(lengths[n - 1 - 2 * f * (n - f) // n]))


def _scaled_to(updates: Updates, bound: float) -> Weights:
    return np.diag(shrinking(norms(updates), bound))
