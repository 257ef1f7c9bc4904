"""The field's attacks on aggregators: as strong as a rule lets them be without being seen. Simulator only.

They know all honest updates, and some of them the rule in use. Where no rule aggregates, as when a single client's
model is proposed, that is the mean. What an attack needs a majority of honest clients for is said where it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from statistics import NormalDist

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from lidfl.adversaries.attacks import attack, lie
from lidfl.errors import LidflError
from lidfl.lazily import torch
from lidfl.methods.aggregators.blocks import Square, gram, pairwise
from lidfl.registry import within
from lidfl.types import Parameters, Updates

Aggregate = Callable[[Updates], Parameters]
FACTORS = [2 ** (step / 2) for step in range(-8, 17)]
"""Strengths that an optimised attack tries first: from 1/16 to 256."""


@attack
def alie(honest: Updates, num_byzantine: int, *, z: float = 0.0) -> Parameters:
    """ALIE: ū − zσ with the z of its paper, or a given one (Baruch et al. 2019).

    s = ⌊n/2 + 1⌋ − f honest clients must be won for a majority, and z = Φ⁻¹((n − f − s)/(n − f)) lies nearer to the
    mean than they do. A majority needs nobody: the formula is void, and z is that of s = 1, within which all but
    one honest client are expected.
    """
    return lie(honest, z=z or supporters_z(len(honest), num_byzantine))


def supporters_z(num_honest: int, num_byzantine: int) -> float:
    """How many deviations from the mean attackers can go and still find enough honest clients farther out.

    >>> round(supporters_z(40, 10), 3), round(supporters_z(4, 6), 3)
    (0.253, 0.674)
    """
    n = num_honest + num_byzantine
    supporters = max(1, n // 2 + 1 - num_byzantine)
    share = (num_honest - supporters) / num_honest
    return NormalDist().inv_cdf(share) if share > 0.5 else 0.0


@attack
def ipm(honest: Updates, *, epsilon: float = 0.5) -> Parameters:
    """IPM, inner product manipulation: −ε ū; a small ε hides, a large one turns the mean (Xie et al. 2020)."""
    return -epsilon * honest.mean(0)


@attack
def opt_alie(honest: Updates, num_byzantine: int, aggregate: Aggregate) -> Parameters:
    """ALIE with the z that moves the rule in use farthest: ū − zσ, z found by a search along the line.

    ALIE fixes z by the number of clients (Baruch et al. 2019); to tune a factor to the rule that is known is
    Shejwalkar and Houmansadr's (2021).
    """
    mean = honest.mean(0)
    return strongest(mean, lie(honest, z=1.0) - mean, honest, num_byzantine, aggregate)


@attack
def opt_ipm(honest: Updates, num_byzantine: int, aggregate: Aggregate) -> Parameters:
    """IPM with the ε that moves the rule in use farthest: −εū, ε found by a search along the line.

    IPM fixes ε (Xie, Koyejo and Gupta 2020); to tune a factor to the rule that is known is Shejwalkar and
    Houmansadr's (2021).
    """
    mean = honest.mean(0)
    return strongest(torch.zeros_like(mean), -mean, honest, num_byzantine, aggregate)


@attack
@within(largest=(1, 1e6))
def pga(
    honest: Updates, num_byzantine: int, aggregate: Aggregate, *, direction: str = "unit", largest: float = 20.0
) -> Parameters:
    """PGA: ū + γp, p of the honest mean length, with the γ that moves the rule in use farthest (Shejwalkar 2022).

    γ grows by a tenth from 1 to `largest`. The paper climbs its own loss; −ū, or another direction, stands for it.
    """
    mean = honest.mean(0)
    away = _direction(direction, honest)
    length = honest.norm(dim=1).mean() / away.norm().clamp_min(1e-30)
    factors = [1.1**step for step in range(1 + int(np.log(max(1.0, largest)) / np.log(1.1)))]
    return farthest((mean + factor * length * away for factor in factors), honest, num_byzantine, aggregate)


@attack
def min_max(honest: Updates, *, direction: str = "std") -> Parameters:
    """Min-max: ū + γp, no farther from any honest update than two of them are apart (Shejwalkar et al. 2021).

    The largest γ solves a quadratic for each honest update: γ²‖p‖² + 2γ⟨p, ū − uᵢ⟩ + ‖ū − uᵢ‖² = max ‖uᵢ − uⱼ‖².
    """
    mean, away = honest.mean(0).double(), _direction(direction, honest).double()
    apart = mean - honest.double()
    a, b = away @ away, apart @ away
    room = pairwise(gram(honest)).max() - apart.square().sum(1)
    root = torch.sqrt((b.square() + a * room).clamp_min(0)) - b
    return _feasible(mean, away, float((root / a.clamp_min(1e-300)).min()), honest)


@attack
def min_sum(honest: Updates, *, direction: str = "std") -> Parameters:
    """Min-sum: as min-max, with the sum of squared distances to all honest updates (Shejwalkar et al. 2021).

    Around the mean that sum is Σ‖ū − uᵢ‖² + kγ²‖p‖², so γ² = (max Σⱼ‖uᵢ − uⱼ‖² − Σ‖ū − uᵢ‖²)/(k‖p‖²).
    """
    mean, away = honest.mean(0).double(), _direction(direction, honest).double()
    room = pairwise(gram(honest)).sum(1).max() - float((honest.double() - mean).square().sum())
    square = max(0.0, room) / max(1e-300, len(honest) * float(away @ away))
    return _feasible(mean, away, square**0.5, honest)


@attack
@within(victim=(-1, inf))
def mimic(honest: Updates, *, victim: int = -1) -> Parameters:
    """Mimic: all send what one honest client sends, which then counts too much (Karimireddy et al. 2022).

    It is the client that is farthest along the direction in which honest updates differ most, found anew each round
    where the paper learns it in the first ones; or always the same `victim`.
    """
    if victim >= 0:
        return honest[min(victim, len(honest) - 1)]
    products = np.nan_to_num(gram(honest), posinf=0, neginf=0)
    centred = products - products.mean(0) - products.mean(1, keepdims=True) + products.mean()
    top = np.linalg.eigh(centred)[1][:, -1]
    return honest[int(np.abs(products @ (top - top.mean())).argmax())]


@attack
def fang_krum(honest: Updates, num_byzantine: int) -> Parameters:
    """Fang's attack on Krum: −λ sign(ū) from all, with the largest λ that Krum still picks (Fang et al. 2020).

    λ is halved from the paper's upper bound until Krum picks it or it is below 10⁻⁵. Members of a majority that
    agrees have distance 0 to each other, and Krum picks them at once.
    """
    signs = honest.mean(0).sign()
    products = gram(honest)
    distances, dim = pairwise(products), max(1.0, float(signs.abs().sum()))
    neighbours = max(1, len(honest) - 2)
    score = np.sort(distances, axis=1)[:, 1 : neighbours + 1].sum(1)
    others = max(1, len(honest) - num_byzantine - 1)
    strength = float(np.sqrt(score.min() / (others * dim)) + np.sqrt(products.diagonal().max() / dim))
    along = (honest.double() @ signs.double()).cpu().numpy()
    while 1e-5 <= strength < np.inf:
        to_honest = products.diagonal() + 2 * strength * along + strength**2 * dim
        if _krum_picks_forged(distances, to_honest, num_byzantine):
            break
        strength /= 2
    return -strength * signs


@attack
@within(stretch=(1, inf))
def fang_trim(honest: Updates, attackers: int, rng: Generator, *, stretch: float = 2.0) -> Updates:
    """Fang's attack on trimmed mean and median: beyond the honest range, against their mean (Fang et al. 2020).

    Where honest updates rise on average it draws between the least of them, a, and a/b or b·a, whichever is below;
    where they fall, between the greatest, c, and b·c or c/b, whichever is above. Each attacker draws anew.
    """
    low, high = honest.amin(0), honest.amax(0)
    below = torch.where(low > 0, low / stretch, low * stretch)
    above = torch.where(high > 0, high * stretch, high / stretch)
    rises = honest.mean(0) > 0
    near, far = torch.where(rises, low, high), torch.where(rises, below, above)
    drawn = torch.from_numpy(rng.random((attackers, len(near)), dtype="float32")).to(near)
    return near + drawn * (far - near)


def strongest(
    base: Parameters, away: Parameters, honest: Updates, num_byzantine: int, aggregate: Aggregate
) -> Parameters:
    """base + factor · away with the factor that harms most: of a wide range, then around the best."""
    best = max(FACTORS, key=lambda factor: harm(base + factor * away, honest, num_byzantine, aggregate))
    around = [best * 2 ** (step / 8) for step in range(-3, 4)]
    return farthest((base + factor * away for factor in around), honest, num_byzantine, aggregate)


def farthest(forged: Iterable[Parameters], honest: Updates, num_byzantine: int, aggregate: Aggregate) -> Parameters:
    """The update that moves a rule farthest from the honest mean if all Byzantine clients send it."""
    return max(forged, key=lambda update: harm(update, honest, num_byzantine, aggregate))


def harm(forged: Parameters, honest: Updates, num_byzantine: int, aggregate: Aggregate) -> float:
    """How far a rule ends from the honest mean; an outcome that is not finite does not count."""
    outcome = aggregate(torch.cat([honest, forged.expand(num_byzantine, -1)]))
    distance = float((outcome - honest.mean(0)).double().norm())
    return distance if np.isfinite(distance) else -1.0


def _direction(name: str, honest: Updates) -> Parameters:
    """Away from the honest mean: against it, against its signs, or along the deviations."""
    mean = honest.mean(0)
    ways: dict[str, Callable[[], Parameters]] = {
        "unit": lambda: -mean / mean.norm().clamp_min(1e-30),
        "sign": lambda: -mean.sign(),
        "std": lambda: lie(honest, z=1.0) - mean,
    }
    if name not in ways:
        raise LidflError(f"unknown direction '{name}'; choose from {', '.join(ways)}")
    return ways[name]()


def _feasible(mean: torch.Tensor, away: torch.Tensor, factor: float, honest: Updates) -> Parameters:
    """mean + factor · away, a hair less, so that rounding does not carry it over the bound."""
    return (mean + (1 - 1e-5) * max(0.0, factor) * away).to(honest.dtype)


def _krum_picks_forged(distances: Square, to_honest: NDArray[np.float64], copies: int) -> bool:
    """Whether Krum picks one of several copies of an update, given its distances to the honest ones."""
    neighbours = max(1, len(distances) - 2)
    forged = np.sort(np.concatenate([np.zeros(copies - 1), to_honest]))[:neighbours].sum()
    beside = np.concatenate([distances, np.repeat(to_honest[:, None], copies, axis=1)], axis=1)
    honest = np.sort(beside, axis=1)[:, 1 : neighbours + 1].sum(1)
    return bool(forged < honest.min())
