"""Rules that leave out, or count less, what looks odd: too long, of odd signs, or too much like others.

None of them is told how many updates are bad.
"""

from __future__ import annotations

from math import inf

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from lidfl.lazily import torch
from lidfl.methods.aggregators.blocks import Square, gram, norms, shrinking, sound, weighted_mean
from lidfl.methods.aggregators.paper import aggregator
from lidfl.registry import within
from lidfl.types import Parameters, Updates

Rows = NDArray[np.bool_]
"""Which rows are meant, shape (updates,)."""


@aggregator
@within(share=(0, 1), low=(0, inf), high=(0, inf))
@sound
def signguard(
    updates: Updates, *, rng: Generator, share: float = 0.1, low: float = 0.1, high: float = 3.0
) -> Parameters:
    """SignGuard: the usual norms and the largest cluster of signs, clipped to the median norm (Xu et al. 2022).

    Kept is who has `low` < ‖uᵢ‖/median < `high` and lies in the largest cluster by mean shift of the shares of
    positive, zero and negative signs, on a random `share` of the coordinates.
    """
    lengths = norms(updates)
    middle = float(np.median(lengths))
    usual = (lengths > low * middle) & (lengths < high * middle)
    count = min(updates.shape[1], max(1, int(share * updates.shape[1])))
    some = torch.from_numpy(np.sort(rng.choice(updates.shape[1], count, replace=False))).to(updates.device)
    alike = largest_cluster(sign_shares(updates[:, some]))
    kept = next(rows for rows in (usual & alike, usual, alike) if rows.any())
    return clipped_mean(updates, kept, lengths, middle)


@aggregator
@within(noise=(0, inf))
@sound
def flame(updates: Updates, *, rng: Generator, noise: float = 0.001) -> Parameters:
    """FLAME: the majority cluster by cosine, clipped to the median norm of all, plus noise (Nguyen et al. 2022).

    The cluster is HDBSCAN's of at least ⌊n/2⌋ + 1 updates; each parameter's noise is N(0, (noise · median norm)²).
    """
    lengths = norms(updates)
    middle = float(np.median(lengths))
    mean = clipped_mean(updates, majority_component(1 - cosines(gram(updates))), lengths, middle)
    if noise <= 0:
        return mean
    drawn = torch.from_numpy(rng.standard_normal(len(mean))).to(mean.device) * (noise * middle)
    top = torch.finfo(mean.dtype).max
    return (mean.double() + drawn).clamp(-top, top).to(mean.dtype)


@aggregator
@sound
def foolsgold(updates: Updates, *, history: Updates | None = None, memory: bool = False) -> Parameters:
    """FoolsGold: who is most like another counts least, since Sybils are alike (Fung et al. 2020).

    vᵢ = max cos(uᵢ, uⱼ); where vⱼ > vᵢ the cosine is pardoned by vᵢ/vⱼ; αᵢ = 1 − max cos, scaled to at most 0.99;
    the weight is ln(α/(1 − α)) + ½ within [0, 1]. The paper compares sums over rounds, as this does with `memory`
    where it makes the one model; else one round's updates.
    """
    known = history is not None and memory and len(history) == len(updates)
    alike = cosines(gram(history if history is not None and known else updates))
    np.fill_diagonal(alike, 0)
    closest = alike.max(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        pardon = np.where(closest[None, :] > closest[:, None], closest[:, None] / closest[None, :], 1)
        alphas = np.clip(1 - (alike * pardon).max(1), 0, 1)
        alphas = np.minimum(alphas / alphas.max(), 0.99)
        weights = np.nan_to_num(np.clip(np.log(alphas / (1 - alphas)) + 0.5, 0, 1))
    if weights.sum() == 0:  # all are alike
        weights = np.ones(len(updates))
    return weighted_mean(updates, weights / weights.sum())


def clipped_mean(updates: Updates, kept: Rows, lengths: NDArray[np.float64], bound: float) -> Parameters:
    """The mean of the rows that are kept, each scaled down to a norm of at most `bound`."""
    return weighted_mean(updates, np.where(kept, shrinking(lengths, bound), 0) / kept.sum())


def cosines(products: Square) -> Square:
    """The cosine of each pair; of an update of zeros it is 0."""
    lengths = np.sqrt(products.diagonal())
    scale = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return np.clip(products * scale[:, None] * scale, -1, 1)


def sign_shares(updates: Updates) -> NDArray[np.float64]:
    """For each row, how much of it is positive, zero and negative."""
    shares = [(sign.sum(1) / updates.shape[1]).cpu().numpy() for sign in (updates > 0, updates == 0, updates < 0)]
    return np.stack(shares, axis=1).astype(np.float64)


def majority_component(distances: Square) -> Rows:
    """The first connected component of more than half of the rows, as the distance that connects grows.

    That is what HDBSCAN finds if a cluster must hold a majority and every point counts as dense: nothing smaller
    can be a cluster, and whoever joins later is noise.
    """
    n = len(distances)
    component = np.arange(n)
    one, other = np.triu_indices(n, 1)
    order = np.argsort(distances[one, other], kind="stable")
    for i, j in zip(one[order].tolist(), other[order].tolist(), strict=True):
        if component[i] != component[j]:
            component[component == component[j]] = component[i]
            if 2 * np.sum(component == component[i]) > n:
                return np.asarray(component == component[i])
    return np.ones(n, dtype=bool)


def largest_cluster(points: NDArray[np.float64], quantile: float = 0.5) -> Rows:
    """The largest cluster by mean shift with a flat kernel (Comaniciu and Meer 2002).

    The bandwidth is the mean distance to the farthest of the nearest half. Every point climbs to a mode; of modes
    within a bandwidth of each other the densest counts, and points belong to the nearest.
    """
    apart = np.linalg.norm(points[:, None] - points, axis=2)
    bandwidth = max(float(np.sort(apart, axis=1)[:, max(1, int(quantile * len(points))) - 1].mean()), 1e-9)
    modes = np.array([_climb(point, points, bandwidth) for point in points])
    density = (np.linalg.norm(modes[:, None] - points, axis=2) <= bandwidth).sum(1)
    peaks: list[int] = []
    for mode in np.lexsort((*modes.T, -density)):
        if all(np.linalg.norm(modes[mode] - modes[peak]) > bandwidth for peak in peaks):
            peaks.append(int(mode))
    owners = np.linalg.norm(points[:, None] - modes[peaks], axis=2).argmin(1)
    return np.asarray(owners == np.bincount(owners).argmax())


def _climb(point: NDArray[np.float64], points: NDArray[np.float64], bandwidth: float) -> NDArray[np.float64]:
    """From a point to the mean of those within a bandwidth, until it rests."""
    for _ in range(300):
        before = point
        point = points[np.linalg.norm(points - before, axis=1) <= bandwidth].mean(0)
        if np.linalg.norm(point - before) <= 1e-3 * bandwidth:
            break
    return point
