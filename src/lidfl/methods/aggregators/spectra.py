"""Rules that go by the direction in which updates differ most.

The eigenvectors of a covariance of n updates follow from their n × n Gram matrix, exactly: no power iteration from
a random start, whose outcome would differ from call to call.
"""

from __future__ import annotations

from itertools import combinations
from math import inf

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from lidfl.lazily import torch
from lidfl.methods.aggregators.blocks import Square, gram, mean_of, sound, weighted_mean
from lidfl.methods.aggregators.limits import refuse_endless, tolerable
from lidfl.methods.aggregators.paper import aggregator
from lidfl.registry import within
from lidfl.types import Parameters, Updates

BATCH = 1000
"""Subsets whose eigenvalues are computed at a time."""


@aggregator
@within(f=(-1, inf))
@sound
def caf(updates: Updates, *, num_honest: int, f: int = -1) -> Parameters:
    """CAF, covariance-agnostic filter: weights fall along the direction of largest variance (Allouah et al. 2025).

    While Σc > n − 2f: take the top eigenpair (λ, v) of the weighted covariance, τᵢ = ⟨uᵢ − μ_c, v⟩², and
    cᵢ ← cᵢ(1 − τᵢ/max τ). The weighted mean μ_c with the smallest λ is the result.
    """
    n = len(updates)
    f = tolerable("caf", n, num_honest, f)
    products = gram(updates)
    weights, best, least = np.ones(n), np.ones(n), np.inf
    while weights.sum() > max(n - 2 * f, 0):
        variance, scores = top_scores(products, weights / weights.sum())
        if variance < least:
            least, best = variance, weights
        scores[weights == 0] = 0  # who is out already must not shield the others
        if scores.max() <= 0:
            break
        weights = weights * (1 - scores / scores.max())
    return weighted_mean(updates, best / best.sum())


@aggregator
@within(f=(-1, inf))
@sound
def smea(updates: Updates, *, num_honest: int, f: int = -1) -> Parameters:
    """SMEA: the mean of the n − f updates whose covariance has the smallest top eigenvalue (Allouah et al. 2023).

    All subsets are looked at; of equals it is the first.
    """
    n = len(updates)
    refuse_endless("smea", n, num_honest, f)
    f = tolerable("smea", n, num_honest, f)
    products = gram(updates)
    subsets = np.array(list(combinations(range(n), n - f)))
    variances = [_top_variances(products, part) for part in np.split(subsets, range(BATCH, len(subsets), BATCH))]
    return mean_of(updates, subsets[np.concatenate(variances).argmin()])


@aggregator
@within(iterations=(1, 1000), coordinates=(1, inf), factor=(0, 1000), f=(-1, inf))
@sound
def dnc(
    updates: Updates,
    *,
    num_honest: int,
    rng: Generator,
    iterations: int = 5,
    coordinates: int = 10_000,
    factor: float = 1.0,
    f: int = -1,
) -> Parameters:
    """DnC: the largest outliers along the top singular vector are left out (Shejwalkar and Houmansadr 2021).

    Each time on other random coordinates: centred, the factor·f updates with the largest ⟨ũᵢ, v⟩² are dropped. The
    mean is over those that are kept every time; if there are none, over those kept the last time.
    """
    n = len(updates)
    f = tolerable("dnc", n, num_honest, f)
    keep = n - min(int(factor * f), n - 1)
    always = last = np.arange(n)
    for _ in range(iterations):
        some = np.sort(rng.choice(updates.shape[1], min(coordinates, updates.shape[1]), replace=False))
        sketch = updates[:, torch.from_numpy(some).to(updates.device)]
        _, scores = top_scores(gram(sketch), np.full(n, 1 / n))
        last = np.sort(np.argsort(scores, kind="stable")[:keep])
        always = np.intersect1d(always, last)
    return mean_of(updates, always if len(always) else last)


def top_scores(products: Square, weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
    """The largest variance λ of updates with weights p, and each one's ⟨uᵢ − μ, v⟩² along its direction v.

    With K the Gram matrix around μ = Σ pᵢuᵢ, the covariance has the eigenvalues of √p K √p. If u is its top
    eigenvector, v = Σ √pᵢ uᵢ (uᵢ − μ)/√λ.
    """
    centred = around_mean(products, weights)
    roots = np.sqrt(weights)
    from scipy.linalg import eigh  # which takes a while to load

    top = len(weights) - 1
    values, vectors = eigh(roots[:, None] * centred * roots, subset_by_index=[top, top])
    variance = float(values[0])
    if variance <= 0:
        return 0.0, np.zeros(len(weights))
    along = centred @ (roots * vectors[:, 0])
    return variance, along * (along / variance)


def around_mean(products: Square, weights: NDArray[np.float64]) -> Square:
    """⟨uᵢ − μ, uⱼ − μ⟩ of all pairs, with μ = Σ pᵢuᵢ."""
    projected = products @ weights
    return products - projected[:, None] - projected[None, :] + weights @ projected


def _top_variances(products: Square, subsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """The top eigenvalue of the covariance of each subset of rows."""
    blocks = products[subsets[:, :, None], subsets[:, None, :]]
    means = blocks.mean(1, keepdims=True)
    centred = blocks - means - means.transpose(0, 2, 1) + blocks.mean((1, 2), keepdims=True)
    top: NDArray[np.float64] = np.linalg.eigvalsh(centred)[:, -1]
    return top
