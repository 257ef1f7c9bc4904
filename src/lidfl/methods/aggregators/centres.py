"""Rules that go by how far updates are from a centre."""

from __future__ import annotations

from math import inf

import numpy as np
from numpy.typing import NDArray

from lidfl.methods.aggregators.blocks import (
    Square,
    by_column,
    distances_to,
    gram,
    mean_of,
    norms,
    sound,
    weighted_mean,
)
from lidfl.methods.aggregators.coordinates import median_of_sorted
from lidfl.methods.aggregators.limits import tolerable
from lidfl.methods.aggregators.paper import MOST_ITERATIONS, aggregator, nearest
from lidfl.registry import within
from lidfl.types import Parameters, Updates


@aggregator
@within(tolerance=(0, 1), iterations=(1, MOST_ITERATIONS))
@sound
def geometric_median(updates: Updates, *, tolerance: float = 1e-8, iterations: int = 1000) -> Parameters:
    """Geometric median, argmin Σ ‖uᵢ − z‖, by Weiszfeld's iteration to a tolerance (Weiszfeld 1937).

    It ends with a step shorter than `tolerance` times the median distance, or after so many iterations. The centre
    z = Σ αᵢuᵢ is always a weighted mean, so distances follow from the Gram matrix: ‖uᵢ − z‖² = Gᵢᵢ − 2(Gα)ᵢ + αᵀGα.
    """
    products = gram(updates)
    floor = 1e-9 * float(np.sqrt(np.median(products.diagonal()))) or 1e-300  # where z meets an update
    weights = np.full(len(updates), 1 / len(updates))
    for _ in range(iterations):
        distances = np.maximum(np.sqrt(from_mean(products, weights)), floor)
        before, weights = weights, 1 / distances / (1 / distances).sum()
        step = weights - before
        if step @ products @ step <= (tolerance * np.median(distances)) ** 2:
            break
    return weighted_mean(updates, weights)


@aggregator
@within(iterations=(1, MOST_ITERATIONS))
@sound
def mca(updates: Updates, *, iterations: int = 20) -> Parameters:
    """MCA: the mode that maximises Σ exp(−‖uᵢ − z‖²/2σ²), by fixed-point iteration (Luan et al. 2025).

    It starts from the coordinate-wise median. The bandwidth is ours: σ² is the median of ‖uᵢ − z‖², each time anew.
    """
    products = gram(updates)
    squares = distances_to(updates, by_column(updates, median_of_sorted))
    weights = np.full(len(updates), 1 / len(updates))
    for _ in range(iterations):
        bandwidth = max(float(np.median(squares)), 1e-300)
        # The largest term counts 1, so that not all of them vanish; what is beyond exp's range counts 0.
        with np.errstate(over="ignore"):
            kernel = np.exp(-np.minimum((squares - squares.min()) / (2 * bandwidth), 700))
        weights = kernel / kernel.sum()
        squares = from_mean(products, weights)
    return weighted_mean(updates, weights)


@aggregator
@within(f=(-1, inf))
@sound
def cge(updates: Updates, *, num_honest: int, f: int = -1) -> Parameters:
    """CGE, comparative gradient elimination: the mean of the n − f shortest updates (Gupta and Vaidya 2020)."""
    n = len(updates)
    f = tolerable("cge", n, num_honest, f)
    lengths = norms(updates)
    return mean_of(updates, nearest(lengths, np.arange(n), n - f))


def from_mean(products: Square, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """‖uᵢ − Σ αⱼuⱼ‖² of each row, from the Gram matrix."""
    projected = products @ weights
    squares: NDArray[np.float64] = np.maximum(products.diagonal() - 2 * projected + weights @ projected, 0)
    return squares
