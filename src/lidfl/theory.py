"""What the guarantee says for given numbers: the paper's formulas, and the right ones where its proofs slip.

`docs/theory.md` has the statements and proofs. Letters are the paper's: m clients, k of them honest, γ = k/m, a
list of q models, c new candidates a round, and an (η, p) oracle, which errs by at most η with probability p.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

import numpy as np
import scipy  # its stats, which take a second to import, only when they are first used

from lidfl.errors import LidflError

SCANNED_CLIENTS = 1_000_000
"""Up to how many clients the exact smallest federation is looked for, one size after the other."""
SCANNED_BLOCKS = 64
"""How many blocks of a sawtooth are looked at one by one before bisection takes over."""

ParentRule: TypeAlias = Literal["uniform", "favourite"]
"""A worker trains a model that is drawn for it, or the one of the list that it likes best."""


def honest_count(num_clients: int, fraction: Fraction) -> int:
    """k = m − ⌊(1 − γ)m⌋ in exact arithmetic, as an experiment counts: 0.4 of 35 is 14.

    >>> honest_count(35, Fraction("0.4"))
    14
    """
    return num_clients - math.floor((1 - fraction) * num_clients)


@dataclass(frozen=True)
class Federation:
    """m clients, k of them honest, and a list of q models.

    >>> Federation.smallest(35, 14)
    Federation(num_clients=35, num_honest=14, list_size=2)
    """

    num_clients: int
    num_honest: int
    list_size: int

    @classmethod
    def smallest(cls, num_clients: int, num_honest: int) -> "Federation":
        """With the shortest list that is safe, q = ⌊m/k⌋ = ⌊1/γ⌋ (paper, remark I)."""
        return cls(num_clients, num_honest, num_clients // num_honest)

    @property
    def honest_fraction(self) -> Fraction:
        """γ = k/m, exactly."""
        return Fraction(self.num_honest, self.num_clients)

    def quota(self, voters: int | None = None) -> int:
        """⌊v/(q + 1)⌋ + 1, the Droop quota: with so many of v first choices none is the weakest of q + 1."""
        return (self.num_clients if voters is None else voters) // (self.list_size + 1) + 1

    @property
    def margin(self) -> int:
        """k less the quota: how many honest votes may go astray; negative if the quota does not hold."""
        return self.num_honest - self.quota()

    def ballot_accuracy(self, p: float, candidates: int = 1) -> float:
        """p^(q + c): the chance, at least, that an honest voter sees all q + c models to within η (lemma 4.2)."""
        return p ** (self.list_size + candidates)

    def advantage(self, accuracy: float) -> float:
        """a = p^(q + c) − 1/((q + 1)γ): by how much the expected share of right honest votes exceeds the quota."""
        return accuracy - float(1 / ((self.list_size + 1) * self.honest_fraction))


# A vote


def vote_failure(federation: Federation, accuracy: float, voters: int | None = None) -> float:
    """Pr{X < quota} for X right honest votes: the exact tail that lemma 4.2 bounds.

    X is binomial if all m clients vote. In a committee of v the number of honest members is hypergeometric, and X
    is binomial given that number.
    """
    wanted = federation.quota(voters)
    if voters is None or voters >= federation.num_clients:
        return float(scipy.stats.binom.cdf(federation.quota() - 1, federation.num_honest, accuracy))
    honest = np.arange(min(voters, federation.num_honest) + 1)
    chance = scipy.stats.hypergeom.pmf(honest, federation.num_clients, federation.num_honest, voters)
    return float(min(1.0, chance @ scipy.stats.binom.cdf(wanted - 1, honest, accuracy)))


def hoeffding(federation: Federation, accuracy: float) -> float:
    """exp(−2a²k), Hoeffding's bound on the failure of a vote; 1 if a ≤ 0."""
    return math.exp(-2 * max(0.0, federation.advantage(accuracy)) ** 2 * federation.num_honest)


def paper_hoeffding(federation: Federation, accuracy: float) -> float:
    """exp(−2ak), as lemma 4.2 prints it: a square is missing, and since a < 1 it is no upper bound."""
    return math.exp(-2 * max(0.0, federation.advantage(accuracy)) * federation.num_honest)


def smallest_p(federation: Federation, candidates: int = 1) -> float:
    """The p at which a = 0: only with a better oracle do more clients make votes safer."""
    share = float(1 / ((federation.list_size + 1) * federation.honest_fraction))
    return math.pow(share, 1 / (federation.list_size + candidates))


def over_rounds(failure: float, rounds: int) -> float:
    """1 − (1 − f)^T: the chance that what fails with chance f a round, independently, fails in any of T rounds.

    >>> over_rounds(0.5, 2)
    0.75
    """
    return 1.0 if failure >= 1 else -math.expm1(rounds * math.log1p(-failure))


def per_round(failure: float, rounds: int) -> float:
    """1 − (1 − δ)^(1/T), the inverse of `over_rounds`: what a round may fail with so that T rounds fail with δ."""
    return -math.expm1(math.log1p(-failure) / rounds)


# How many clients, how much validation data


@dataclass(frozen=True)
class Size:
    """From what size on something holds. Quotas are whole numbers, so it may hold, fail and hold again."""

    smallest: int
    """The smallest size for which it holds."""
    onwards: int
    """The smallest size from which on it holds for every size."""


def clients_needed(federation: Federation, accuracy: float, delta: float) -> int | None:
    """m ≥ ln(1/δ)/(2γa²), from Hoeffding's bound; None if a ≤ 0, where no number of clients is enough."""
    return _clients(federation, federation.advantage(accuracy), delta, power=2)


def paper_clients_needed(federation: Federation, accuracy: float, delta: float) -> int | None:
    """m ≥ ln(1/δ)/(2γa), as theorem 4.1 prints it, from the bound that lacks a square."""
    return _clients(federation, federation.advantage(accuracy), delta, power=1)


def _clients(federation: Federation, advantage: float, delta: float, power: int) -> int | None:
    if advantage <= 0:
        return None
    return math.ceil(math.log(1 / delta) / (2 * float(federation.honest_fraction) * advantage**power))


def exact_clients_needed(federation: Federation, accuracy: float, delta: float) -> Size | None:
    """For how many clients, ⌈γm⌉ of them honest and q as it is, the exact binomial tail is at most δ.

    Hoeffding's bound settles all sizes from `clients_needed` on, so that only those below are looked at; None if
    these are too many, or if a ≤ 0.
    """
    limit = clients_needed(federation, accuracy, delta)
    if limit is None or limit > SCANNED_CLIENTS:
        return None
    sizes = np.arange(1, limit + 1)
    honest = -(-sizes * federation.num_honest // federation.num_clients)
    fails = scipy.stats.binom.cdf(sizes // (federation.list_size + 1), honest, accuracy) > delta
    fails[-1] = False  # by the bound, whatever rounding says
    return Size(smallest=int(sizes[~fails][0]), onwards=int(sizes[fails][-1]) + 1 if fails.any() else 1)


def validation_size(eta: float, p: float, loss_range: float = 1.0) -> int | None:
    """n' = 2H² ln(4/(1 − p))/η² makes a client's validation loss an (η, p) oracle; None if p = 1.

    Two deviations of η/2 are allowed for, of the validation and of the training loss from the expected loss, each
    with chance (1 − p)/2 and to either side: 2 exp(−n'η²/(2H²)) = (1 − p)/2.
    """
    return _validation_size(eta, p, loss_range, 4)


def paper_validation_size(eta: float, p: float, loss_range: float = 1.0) -> int | None:
    """n' = 2H² ln(2/(1 − p))/η², as appendix A.3 prints it: it counts deviations to one side only."""
    return _validation_size(eta, p, loss_range, 2)


def _validation_size(eta: float, p: float, loss_range: float, sides: int) -> int | None:
    if p >= 1:
        return None
    return math.ceil(2 * loss_range**2 * math.log(sides / (1 - p)) / eta**2)


# Committees


def committee_failure(federation: Federation, voters: int) -> float:
    """Pr{H < quota} for H honest members among v drawn without replacement: the hypergeometric tail.

    Of scipy's functions `cdf` keeps its digits down to 1e-300; `logcdf` loses some for millions of clients.
    """
    m, k = federation.num_clients, federation.num_honest
    return float(scipy.stats.hypergeom.cdf(federation.quota(voters) - 1, m, k, voters))


def committee_size(federation: Federation, delta: float) -> Size | None:
    """How many voters, drawn anew, hold an honest quota with probability 1 − δ; None if not even all clients do.

    Committees of (q + 1)j to (q + 1)j + q voters, a block, have the same quota: the chance of failure falls within
    a block and jumps up at the start of the next. So the smallest safe committee lies in the first block whose last
    committee is safe, and the one from which on all are safe lies in the block before the first one from which on
    all first committees are.

    From block to block, unsafe ones come first and safe ones after if δ ≤ 1/2: unsafe means that z·sd(v), z ≥ 0,
    exceeds the mean's distance to the quota, which is linear in v, while the deviation sd(v) is concave. This takes
    the distribution for normal, which it is not when few are in the committee or few are left out of it, so blocks
    at both ends are looked at one by one. Tests compare with brute force.
    """
    if delta > 0.5:
        raise LidflError(f"a committee's chance of failure must be at most 0.5, not {delta:g}")
    block, everyone = federation.list_size + 1, federation.num_clients

    def safe(voters: int) -> bool:
        return committee_failure(federation, min(voters, everyone)) <= delta

    if not safe(everyone):
        return None
    last = everyone // block + 1  # this block begins with more than everyone, which counts as everyone
    end = _first(lambda j: safe(block * j + block - 1), last)
    start = _from_on(lambda j: safe(block * j), last)
    return Size(
        smallest=_bisect(safe, block * end, min(block * end + block - 1, everyone)),
        onwards=_bisect(safe, block * (start - 1), min(block * start - 1, everyone)),
    )


def _first(holds: Callable[[int], bool], last: int) -> int:
    """The first j up to `last`, which holds: one by one at first, then by bisection."""
    looked = min(SCANNED_BLOCKS, last)
    for j in range(looked):
        if holds(j):
            return j
    return _bisect(holds, looked, last)


def _from_on(holds: Callable[[int], bool], last: int) -> int:
    """The j > 0 from which on all hold: one by one at both ends, by bisection between."""
    high = max(0, last - SCANNED_BLOCKS)
    for j in range(last, high - 1, -1):
        if not holds(j):
            return j + 1
    found = _bisect(holds, min(SCANNED_BLOCKS, high), high)
    while holds(found - 1):
        found -= 1
    return found


def _bisect(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The first of low … high that holds, where none does and then all do, `high` at the least."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return high


# Convergence


@dataclass(frozen=True)
class Problem:
    """An α-strongly convex, β-smooth loss whose gradients have noise of variance σ² (paper, section 4)."""

    alpha: float
    beta: float
    sigma: float
    gap: float = 1.0
    """f(w₀) − f(w*), how much there is to gain at the start."""


def good_round(federation: Federation, rule: ParentRule, candidates: int, p: float) -> float:
    """The chance that at least one of c workers is honest and trains a model as good as the best of the list.

    With X honest workers (hypergeometric) it is 1 − E(1 − s)^X. Uniform parents: s = 1/q, the best model is drawn;
    for c = 1 that is the paper's γ/q. Favourite parents: s = p^q, the worker sees the whole list to within η, so
    that its favourite is at most 2η worse than the best; with a perfect oracle one honest worker is enough.
    """
    right = 1 / federation.list_size if rule == "uniform" else p**federation.list_size
    honest = np.arange(min(candidates, federation.num_honest) + 1)
    chance = scipy.stats.hypergeom.pmf(honest, federation.num_clients, federation.num_honest, candidates)
    return float(min(1.0, chance @ (1 - (1 - right) ** honest)))


@dataclass(frozen=True)
class Convergence:
    """E[f(w_t) − f*] ≤ r^t (f(w₀) − f*) + s (1 − r^t)/(1 − r) while no vote fails: theorem 4.1, put right."""

    rate: float
    """r = 1 − ρ(1 − δ)α/β, with ρ the chance of a good round."""
    slack: float
    """s, what a round may lose: 2ηc in the vote, σ²/(2β) by noise, and 2η(1 − α/β) by a favourite's choice."""
    gap: float

    @property
    def floor(self) -> float:
        """ε = s/(1 − r), where the bound ends; for c = 1 and uniform parents q(4ηβ + σ²)/(2αγ(1 − δ))."""
        return math.inf if self.rate >= 1 else self.slack / (1 - self.rate)

    @property
    def half_life(self) -> float:
        """How many rounds halve what is left of the start."""
        return math.inf if self.rate >= 1 else math.log(0.5) / math.log(self.rate) if self.rate > 0 else 0.0

    def bound(self, round_index: int) -> float:
        """The bound after so many rounds."""
        if self.rate >= 1:
            return self.gap + self.slack * round_index
        left = self.rate**round_index
        return left * self.gap + (1 - left) * self.floor


def convergence(
    federation: Federation,
    problem: Problem,
    *,
    rule: ParentRule,
    eta: float,
    p: float,
    candidates: int = 1,
    failure: float = 0.0,
) -> Convergence:
    """The bound for c candidates, ranked ballots if c > 1, and votes that fail with probability δ = `failure`.

    Each of the c removals of a vote may cost 2η: docs/theory.md proves it, and that it cannot be less.
    """
    good = good_round(federation, rule, candidates, p) * (1 - failure)
    choice = 2 * eta * (1 - problem.alpha / problem.beta) if rule == "favourite" else 0.0
    return Convergence(
        rate=1 - good * problem.alpha / problem.beta,
        slack=2 * eta * candidates + problem.sigma**2 / (2 * problem.beta) + choice,
        gap=problem.gap,
    )


def paper_bound(
    federation: Federation, problem: Problem, eta: float, round_index: int, failure: float = 0.0
) -> float:
    """e^(−αγ(1−δ)t/(βq)) (f(w₀) − f*) + q(1 − δ)(4ηβ + σ²)/(2αγ), as theorem 4.1 prints it."""
    good = float(federation.honest_fraction) / federation.list_size
    left = math.exp(-problem.alpha * good * (1 - failure) / problem.beta * round_index)
    noise = 4 * eta * problem.beta + problem.sigma**2
    return left * problem.gap + (1 - failure) * noise / (2 * problem.alpha * good)
