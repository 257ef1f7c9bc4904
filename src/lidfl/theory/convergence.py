"""Convergence: how fast the loss falls while no vote fails, and where the bound ends."""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import scipy  # scipy.stats takes a second to import and is loaded when first used

from lidfl.theory.votes import Electorate

ParentRule: TypeAlias = Literal["uniform", "favourite"]
"""A worker trains a model that is drawn for it, or the one of the list that it likes best."""


@dataclass(frozen=True)
class Problem:
    """An α-strongly convex, β-smooth loss whose gradients have noise of variance σ² (paper, section 4)."""

    alpha: float
    beta: float
    sigma: float
    gap: float = 1.0
    """f(w₀) − f(w*), how much there is to gain at the start."""


def good_round(electorate: Electorate, rule: ParentRule, candidates: int, p: float) -> float:
    """The chance that at least one of c workers is honest and trains a model as good as the best of the list.

    With X honest workers, a hypergeometric number, it is 1 − E(1 − s)^X, where s is a worker's chance of the right
    parent. Uniform parents: s = 1/q, since the best of q models is drawn; for c = 1 this gives the paper's γ/q.
    Favourite parents: s = p^q, the chance that the worker sees the whole list to within η. Then its favourite is at
    most 2η worse than the best. With a perfect oracle one honest worker is enough.
    """
    right = 1 / electorate.list_size if rule == "uniform" else p**electorate.list_size
    honest = np.arange(min(candidates, electorate.num_honest) + 1)
    chance = scipy.stats.hypergeom.pmf(honest, electorate.num_clients, electorate.num_honest, candidates)
    return float(min(1.0, chance @ (1 - (1 - right) ** honest)))


@dataclass(frozen=True)
class Convergence:
    """Theorem 4.1, corrected: E[f(w_t) − f*] ≤ r^t (f(w₀) − f*) + s (1 − r^t)/(1 − r) while no vote fails."""

    rate: float
    """r = 1 − ρ(1 − δ)α/β, with ρ the chance of a good round."""
    slack: float
    """s, what a round may lose: 2ηc in the vote, σ²/(2β) by noise, and 2η(1 − α/β) by a favourite's choice."""
    gap: float
    """f(w₀) − f*, where the bound starts."""

    @property
    def floor(self) -> float:
        """ε = s/(1 − r), where the bound ends; for c = 1 and uniform parents q(4ηβ + σ²)/(2αγ(1 − δ))."""
        return math.inf if self.rate >= 1 else self.slack / (1 - self.rate)

    @property
    def half_life(self) -> float:
        """How many rounds it takes to halve r^t, what is left of the start."""
        return math.inf if self.rate >= 1 else math.log(0.5) / math.log(self.rate) if self.rate > 0 else 0.0

    def bound(self, round_index: int) -> float:
        """The bound after so many rounds."""
        if self.rate >= 1:
            return self.gap + self.slack * round_index
        left = self.rate**round_index
        return left * self.gap + (1 - left) * self.floor


def corrected_bound(
    electorate: Electorate,
    problem: Problem,
    *,
    rule: ParentRule,
    eta: float,
    p: float,
    candidates: int = 1,
    failure: float = 0.0,
) -> Convergence:
    """The bound for c candidates, with ranked ballots if c > 1. A vote fails with probability δ = `failure`.

    Each of the c removals of a vote may cost 2η: docs/theory.md proves it, and that it cannot be less.
    """
    good = good_round(electorate, rule, candidates, p) * (1 - failure)
    choice = 2 * eta * (1 - problem.alpha / problem.beta) if rule == "favourite" else 0.0
    return Convergence(
        rate=1 - good * problem.alpha / problem.beta,
        slack=2 * eta * candidates + problem.sigma**2 / (2 * problem.beta) + choice,
        gap=problem.gap,
    )


def paper_bound(
    electorate: Electorate, problem: Problem, eta: float, round_index: int, failure: float = 0.0
) -> float:
    """e^(−αγ(1−δ)t/(βq)) (f(w₀) − f*) + q(1 − δ)(4ηβ + σ²)/(2αγ), as theorem 4.1 prints it."""
    good = float(electorate.honest_fraction) / electorate.list_size
    left = math.exp(-problem.alpha * good * (1 - failure) / problem.beta * round_index)
    noise = 4 * eta * problem.beta + problem.sigma**2
    return left * problem.gap + (1 - failure) * noise / (2 * problem.alpha * good)
