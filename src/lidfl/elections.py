"""Elections: who votes for what, and who goes.

Positions are in order of birth, so among equals the oldest is the one with the highest age and then the lowest
position. Ties remove the oldest: a new model survives a tie.

A vote attack is one function (simulator only). What it names among its parameters is what it is given:

| parameter | meaning |
|---|---|
| `losses` | the Byzantine voters' own validation losses, (attackers, candidates) |
| `honest_losses`, `honest_ballots` | what the honest voters see and cast: colluding voters know it |
| `ages`, `seats` | the candidates' ages, and how many of them stay |
| `rng` | randomness for this vote |
"""

from collections.abc import Sequence

import numpy as np
from numpy.random import Generator

from lidfl.registry import Registry
from lidfl.types import Ballot, Losses, Position

election = Registry[list[Position]]("election")
vote_attack = Registry[list[Ballot]](
    "vote attack", frozenset({"losses", "honest_losses", "honest_ballots", "ages", "seats", "rng"})
)


def first_choices(ballots: Sequence[Ballot], candidates: int) -> list[int]:
    """How many ballots put each candidate first; an empty ballot is an abstention."""
    tally = [0] * candidates
    for ballot in ballots:
        if ballot:
            tally[ballot[0]] += 1
    return tally


def weakest_first(tally: Sequence[int], ages: Sequence[int]) -> list[Position]:
    """Candidates from the first to go to the last: the fewest votes, then the oldest."""
    return sorted(range(len(tally)), key=lambda position: (tally[position], -ages[position], position))


@election
def plurality(ballots: Sequence[Ballot], ages: Sequence[int], seats: int) -> list[Position]:
    """The paper's step 5: one choice a voter, and the least-voted candidates go.

    >>> plurality([(0,), (0,), (2,)], ages=[4, 1, 0], seats=2)
    [1]
    """
    tally = first_choices(ballots, len(ages))
    return weakest_first(tally, ages)[: len(ages) - seats]


def honest_ballots(losses: Losses) -> list[Ballot]:
    """The paper's step 4: each votes for its lowest loss, ties to the oldest; who sees only +inf abstains."""
    best = losses.argmin(1)
    finite = np.isfinite(losses.min(1))
    return [(int(choice),) if votes else () for choice, votes in zip(best, finite, strict=True)]


@vote_attack
def none(losses: Losses) -> list[Ballot]:
    """No attack: Byzantine clients vote as honest ones do."""
    return honest_ballots(losses)


@vote_attack
def worst(losses: Losses) -> list[Ballot]:
    """Worst: each votes for the model with its highest validation loss."""
    return [(int(choice),) for choice in losses.argmax(1)]


@vote_attack
def random(losses: Losses, rng: Generator) -> list[Ballot]:
    """Random: each votes at random for any model but the one with its lowest validation loss."""
    voters, candidates = losses.shape
    steps = rng.integers(1, candidates, size=voters)
    return [(int(choice),) for choice in (losses.argmin(1) + steps) % candidates]


@vote_attack
def coordinated(
    losses: Losses,
    honest_losses: Losses,
    honest_ballots: Sequence[Ballot],
    ages: Sequence[int],
    seats: int,
) -> list[Ballot]:
    """Colluding voters remove the honest clients' favourite if they can, else keep the worst models alive.

    A candidate can be removed if and only if `seats` others can be lifted over it, and lifting those that need the
    fewest ballots is best. If the favourite cannot be removed, the voters keep the `seats` candidates with the
    highest mean honest loss alive; if even that takes more ballots, they remove the best candidate that they can.
    """
    tally = first_choices(honest_ballots, len(ages))
    mean_loss = honest_losses.mean(0)
    best_first = sorted(range(len(ages)), key=lambda position: mean_loss[position])
    favourite = max(best_first, key=lambda position: tally[position])
    strongest_last = weakest_first(tally, ages)

    def others(victim: Position) -> list[Position]:
        return [position for position in strongest_last if position != victim][-seats:]

    plans = [([favourite], others(favourite)), (best_first[:-seats], best_first[-seats:])]
    plans += [([victim], others(victim)) for victim in best_first]
    for victims, targets in plans:
        ballots = lift(targets, tally, ages, len(losses))
        if set(victims) <= set(plurality([*honest_ballots, *ballots], ages, seats)):
            return ballots
    raise AssertionError("whoever goes anyway can be removed")


def lift(targets: Sequence[Position], tally: Sequence[int], ages: Sequence[int], ballots: int) -> list[Ballot]:
    """Spend ballots one by one on whichever target would go first: no other spending lifts them all higher."""
    total = list(tally)
    cast: list[Ballot] = []
    for _ in range(ballots):
        weakest = next(position for position in weakest_first(total, ages) if position in targets)
        total[weakest] += 1
        cast.append((weakest,))
    return cast
