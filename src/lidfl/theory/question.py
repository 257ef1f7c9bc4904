"""The question that a plan answers: its settings, and the checks on them."""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from lidfl.errors import LidflError
from lidfl.settings.options import option
from lidfl.theory import votes
from lidfl.theory.convergence import Convergence, ParentRule, Problem, corrected_bound
from lidfl.theory.votes import Electorate

MOST_CLIENTS = 10_000_000
"""Beyond, exact tails take minutes, and say what they say for so many."""
MOST_CANDIDATES = 100_000
MOST_ROUNDS = 10**12
TINY, HUGE = 1e-12, 1e12
"""Between these, squares and quotients are numbers too."""
LEAST_DELTA = 1e-300
"""Floats end there."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """The settings of a plan; letters are the paper's."""

    clients: int = option("m, how many clients there are", unset="(required)")
    honest: int | None = option("k, how many of them are honest at least (or give --honest-fraction)")
    honest_fraction: float | None = option("γ = k/m, which fraction of them is honest at least")
    list_size: int | None = option("q, how many models the server keeps (default: ⌊m/k⌋, the fewest that are safe)")
    p: float = option("chance that a client's validation loss of a model is within η of the true loss", 0.999)
    eta: float = option("η, by how much a validation loss may be off and still count as right", 0.01)
    sigma: float = option("σ, standard deviation of a stochastic gradient's noise", 0.1)
    alpha: float = option("α, strong convexity of the loss: its least curvature", 0.5)
    beta: float = option("β, smoothness of the loss: its largest curvature; a step is 1/β of the gradient", 1.0)
    gap: float = option(
        "f(w₀) − f(w*), by how much the first model's loss exceeds the least; 1 makes it the unit", 1.0
    )
    loss_range: float = option("H, losses of single images lie between 0 and H", 1.0)
    classes: int = option("how many classes; voters judge by a bounded loss, and H is ln(classes) (0: as above)", 0)
    images: int = option("n', how many validation images a voter has (0: as many as it needs)", 0)
    delta: float = option("δ, chance of failure that is acceptable", 1e-6)
    rounds: int = option("T, how many rounds; 1,500 is the paper's number for FEMNIST", 1500)
    candidates: int = option("c, how many clients each train a new model a round; 1 is the paper's", 1)
    voters: int = option("how many clients, drawn anew each round, vote (0: all)", 0)
    sybils: int = option("how many malicious clients may join later (0: as many as there are)", 0)

    def __post_init__(self) -> None:
        _check("clients", self.clients, low=1, high=MOST_CLIENTS)
        if (self.honest is None) == (self.honest_fraction is None):
            raise LidflError("give either --honest, such as 14, or --honest-fraction, such as 0.4")
        if self.honest_fraction is not None:
            _check("honest-fraction", self.honest_fraction, above=0, high=1)
        _check("honest", self.electorate.num_honest, low=1, high=self.clients)
        if self.list_size is not None:
            _check("list-size", self.list_size, low=1, high=MOST_CLIENTS)
        _check("p", self.p, above=0, high=1)
        for name in ("eta", "alpha", "loss_range"):
            _check(name.replace("_", "-"), getattr(self, name), low=TINY, high=HUGE)
        _check("beta", self.beta, low=self.alpha, high=HUGE)
        for name in ("sigma", "gap"):
            _check(name, getattr(self, name), low=0, high=HUGE)
        _check("delta", self.delta, low=LEAST_DELTA, high=0.5)
        _check("rounds", self.rounds, low=1, high=MOST_ROUNDS)
        _check("candidates", self.candidates, low=1, high=min(self.clients, MOST_CANDIDATES))
        _check("voters", self.voters, low=0, high=self.clients)
        _check("sybils", self.sybils, low=0, high=MOST_CLIENTS)
        _check("classes", self.classes, low=0, high=MOST_CLIENTS)
        _check("images", self.images, low=0, high=MOST_ROUNDS)
        if self.classes == 1 or (self.classes and self.loss_range != 1.0):
            raise LidflError("give --classes, at least 2, or --loss-range: the one says what the other is")

    @property
    def electorate(self) -> Electorate:
        """The clients, the honest ones among them, and the list."""
        honest = self.honest
        if honest is None:
            honest = votes.honest_count(self.clients, Fraction(str(self.honest_fraction)))
        return Electorate(self.clients, honest, self.list_size or self.clients // max(1, honest))

    @property
    def largest_loss(self) -> float:
        """H: ln(classes) where voters judge by `bounded`, whose losses are cut at that of a guess."""
        return math.log(self.classes) if self.classes else self.loss_range

    @property
    def problem(self) -> Problem:
        """What the loss is assumed to be like."""
        return Problem(self.alpha, self.beta, self.sigma, self.gap)

    @property
    def accuracy(self) -> float:
        """The chance that an honest ballot is right about every candidate."""
        return self.electorate.ballot_accuracy(self.p, self.candidates)

    @cached_property
    def vote_failure(self) -> float:
        """The exact chance that a vote fails."""
        return votes.vote_failure(self.electorate, self.accuracy, self.voters or None)

    def convergence(self, rule: ParentRule) -> Convergence:
        """The corrected bound under one of the two rules for parents."""
        return corrected_bound(
            self.electorate,
            self.problem,
            rule=rule,
            eta=self.eta,
            p=self.p,
            candidates=self.candidates,
            failure=self.vote_failure,
        )


def _check(
    name: str, value: float | None, *, low: float = -math.inf, above: float = -math.inf, high: float = math.inf
) -> None:
    if value is None:
        raise LidflError(f"--{name} is missing; `lidfl plan --help` says what it is")
    if not (low <= value <= high and above < value < math.inf):
        at_least = f"at least {low:,}" if low > -math.inf else f"above {above:,}"
        at_most = f" and at most {high:,}" if high < math.inf else ""
        raise LidflError(f"--{name} must be {at_least}{at_most}, not {value:,}")
