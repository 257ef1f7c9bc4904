"""Votes: who is honest, the quota, how often a vote fails, and how many clients and images are enough."""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import scipy  # scipy.stats takes a second to import and is loaded when first used

SCANNED_CLIENTS = 1_000_000
"""`exact_clients_needed` tries one size after the other, up to this many clients."""


def honest_count(num_clients: int, fraction: Fraction) -> int:
    """k = m − ⌊(1 − γ)m⌋ in exact arithmetic, as an experiment counts: 0.4 of 35 is 14.

    >>> honest_count(35, Fraction("0.4"))
    14
    """
    return num_clients - math.floor((1 - fraction) * num_clients)


@dataclass(frozen=True)
class Electorate:
    """m clients, k of them honest, and the q models that they may keep in the list.

    >>> Electorate.smallest(35, 14)
    Electorate(num_clients=35, num_honest=14, list_size=2)
    """

    num_clients: int
    num_honest: int
    list_size: int

    @classmethod
    def smallest(cls, num_clients: int, num_honest: int) -> "Electorate":
        """The electorate with the shortest list that is safe, q = ⌊m/k⌋ = ⌊1/γ⌋ (paper, remark I)."""
        return cls(num_clients, num_honest, num_clients // num_honest)

    @property
    def honest_fraction(self) -> Fraction:
        """γ = k/m, exactly."""
        return Fraction(self.num_honest, self.num_clients)

    def quota(self, voters: int | None = None) -> int:
        """⌊v/(q + 1)⌋ + 1, the Droop quota: a model with this many of v first choices is not the weakest of q + 1.

        Without `voters` all m clients vote.
        """
        return (self.num_clients if voters is None else voters) // (self.list_size + 1) + 1

    @property
    def margin(self) -> int:
        """k less the quota: how many honest votes may go astray. If it is negative, the quota does not hold."""
        return self.num_honest - self.quota()

    @property
    def room(self) -> int:
        """k(q + 1) − 1 − m: how many malicious clients may join before the honest are no quota any more.

        The quota holds for k > m/(q + 1). If it is negative, the quota does not hold as it is.
        """
        return self.num_honest * (self.list_size + 1) - 1 - self.num_clients

    def joined_by(self, sybils: int) -> "Electorate":
        """The same honest clients and list when so many malicious clients have joined."""
        return Electorate(self.num_clients + sybils, self.num_honest, self.list_size)

    def ballot_accuracy(self, p: float, candidates: int = 1) -> float:
        """p^(q + c): the chance, at least, that an honest voter sees all q + c models to within η (lemma 4.2)."""
        return p ** (self.list_size + candidates)

    def advantage(self, accuracy: float) -> float:
        """a = p^(q + c) − 1/((q + 1)γ): by how much the right votes that are expected exceed the quota.

        Both are counted as shares of the honest votes.
        """
        return accuracy - float(1 / ((self.list_size + 1) * self.honest_fraction))


# How often a vote fails


def vote_failure(electorate: Electorate, accuracy: float, voters: int | None = None) -> float:
    """Pr{X < quota}, where X counts the right honest votes: the exact tail that lemma 4.2 bounds.

    If all m clients vote, X is binomial. In a committee of v voters the number of honest members is hypergeometric,
    and given that number X is binomial.
    """
    wanted = electorate.quota(voters)
    if voters is None or voters >= electorate.num_clients:
        return float(scipy.stats.binom.cdf(electorate.quota() - 1, electorate.num_honest, accuracy))
    honest = np.arange(min(voters, electorate.num_honest) + 1)
    chance = scipy.stats.hypergeom.pmf(honest, electorate.num_clients, electorate.num_honest, voters)
    return float(min(1.0, chance @ scipy.stats.binom.cdf(wanted - 1, honest, accuracy)))


def hoeffding(electorate: Electorate, accuracy: float) -> float:
    """exp(−2a²k), Hoeffding's bound on the failure of a vote; 1 if a ≤ 0."""
    return math.exp(-2 * max(0.0, electorate.advantage(accuracy)) ** 2 * electorate.num_honest)


def paper_hoeffding(electorate: Electorate, accuracy: float) -> float:
    """exp(−2ak), as lemma 4.2 prints it. A square is missing, and since a < 1 this is no upper bound."""
    return math.exp(-2 * max(0.0, electorate.advantage(accuracy)) * electorate.num_honest)


def smallest_p(electorate: Electorate, candidates: int = 1) -> float:
    """The p at which a = 0. More clients make votes safer only if p is larger than this."""
    share = float(1 / ((electorate.list_size + 1) * electorate.honest_fraction))
    return math.pow(share, 1 / (electorate.list_size + candidates))


def over_rounds(failure: float, rounds: int) -> float:
    """1 − (1 − f)^T: the chance that any of T rounds fails, if each fails with chance f, independently.

    >>> over_rounds(0.5, 2)
    0.75
    """
    return 1.0 if failure >= 1 else -math.expm1(rounds * math.log1p(-failure))


def per_round(failure: float, rounds: int) -> float:
    """1 − (1 − δ)^(1/T): how often a round may fail so that any of T does with chance δ. Undoes `over_rounds`."""
    return -math.expm1(math.log1p(-failure) / rounds)


# How many clients, how much validation data


@dataclass(frozen=True)
class Size:
    """From what size on something holds. Quotas are whole numbers, so it may hold, fail and hold again."""

    smallest: int
    """The smallest size for which it holds."""
    onwards: int
    """From this size on it holds for every size."""


def clients_needed(electorate: Electorate, accuracy: float, delta: float) -> int | None:
    """m ≥ ln(1/δ)/(2γa²), from Hoeffding's bound; None if a ≤ 0, where no number of clients is enough."""
    return _clients(electorate, electorate.advantage(accuracy), delta, power=2)


def paper_clients_needed(electorate: Electorate, accuracy: float, delta: float) -> int | None:
    """m ≥ ln(1/δ)/(2γa), as theorem 4.1 prints it, from the bound that lacks a square."""
    return _clients(electorate, electorate.advantage(accuracy), delta, power=1)


def _clients(electorate: Electorate, advantage: float, delta: float, power: int) -> int | None:
    if advantage <= 0:
        return None
    return math.ceil(math.log(1 / delta) / (2 * float(electorate.honest_fraction) * advantage**power))


def exact_clients_needed(electorate: Electorate, accuracy: float, delta: float) -> Size | None:
    """For how many clients the exact binomial tail is at most δ, if ⌈γm⌉ of them are honest and q stays the same.

    By Hoeffding's bound every size from `clients_needed` on is enough, so only the sizes below are tried.
    None if these are too many to try, or if a ≤ 0.
    """
    limit = clients_needed(electorate, accuracy, delta)
    if limit is None or limit > SCANNED_CLIENTS:
        return None
    sizes = np.arange(1, limit + 1)
    honest = -(-sizes * electorate.num_honest // electorate.num_clients)
    fails = scipy.stats.binom.cdf(sizes // (electorate.list_size + 1), honest, accuracy) > delta
    fails[-1] = False  # by the bound, whatever rounding says
    return Size(smallest=int(sizes[~fails][0]), onwards=int(sizes[fails][-1]) + 1 if fails.any() else 1)


def validation_size(eta: float, p: float, loss_range: float = 1.0) -> int | None:
    """n' = 2H² ln(4/(1 − p))/η² images make a client's validation loss an (η, p) oracle; None if p = 1.

    The validation loss and the training loss may each deviate from the expected loss by η/2, to either side. Each
    may exceed that with chance (1 − p)/2, so by Hoeffding's inequality 2 exp(−n'η²/(2H²)) = (1 − p)/2.
    """
    return _validation_size(eta, p, loss_range, 4)


def paper_validation_size(eta: float, p: float, loss_range: float = 1.0) -> int | None:
    """n' = 2H² ln(2/(1 − p))/η², as appendix A.3 prints it: it counts deviations to one side only."""
    return _validation_size(eta, p, loss_range, 2)


def _validation_size(eta: float, p: float, loss_range: float, sides: int) -> int | None:
    if p >= 1:
        return None
    return math.ceil(2 * loss_range**2 * math.log(sides / (1 - p)) / eta**2)


def held_out_size(eta: float, p: float, loss_range: float = 1.0) -> int | None:
    """n' = H² ln(2/(1 − p))/(2η²) images, if f is the *expected* loss: the error is the validation set's alone."""
    return None if p >= 1 else math.ceil(loss_range**2 * math.log(2 / (1 - p)) / (2 * eta**2))


def held_out_error(images: int, p: float, loss_range: float = 1.0) -> float | None:
    """η = H √(ln(2/(1 − p))/(2n')): a loss on n' held-out images is no further off with chance p; None if p = 1."""
    return None if p >= 1 else loss_range * math.sqrt(math.log(2 / (1 - p)) / (2 * images))
