"""How Byzantine clients vote. Simulator only.

A vote attack is one function. What it names among its parameters is what it is given:

| parameter | meaning |
|---|---|
| `losses` | the Byzantine voters' own validation losses, (attackers, candidates) |
| `honest_losses`, `honest_ballots` | what the honest voters see and cast: colluding voters know it |
| `ages`, `seats` | the candidates' ages, and how many of them stay |
| `ranks` | how many candidates a ballot may rank: 1 under plurality |
| `rng` | randomness for this vote |
"""

from collections.abc import Sequence

import numpy as np
from numpy.random import Generator

from lidfl.collusion import Elimination
from lidfl.elections import first_choices, honest_ballots, plurality, weakest_first
from lidfl.registry import Registry
from lidfl.types import Ballot, Losses, Position

vote_attack = Registry[list[Ballot]](
    "vote attack", frozenset({"losses", "honest_losses", "honest_ballots", "ages", "seats", "ranks", "rng"})
)


@vote_attack
def none(losses: Losses, ranks: int = 1) -> list[Ballot]:
    """No attack: Byzantine clients vote as honest ones do."""
    return honest_ballots(losses, ranks)


@vote_attack
def worst(losses: Losses, ranks: int = 1) -> list[Ballot]:
    """Worst: each votes for the model with its highest validation loss, or ranks by falling loss."""
    return _as_ballots(np.argsort(-losses, axis=1, kind="stable")[:, :ranks])


@vote_attack
def random(losses: Losses, rng: Generator, ranks: int = 1) -> list[Ballot]:
    """Random: each votes for any model but its best, or ranks them at random with its best last."""
    voters, candidates = losses.shape
    best = losses.argmin(1, keepdims=True)
    if ranks == 1:
        return _as_ballots((best + rng.integers(1, candidates, size=(voters, 1))) % candidates)
    steps = rng.permuted(np.tile(np.arange(1, candidates), (voters, 1)), axis=1)
    return _as_ballots(np.hstack([(best + steps) % candidates, best])[:, :ranks])


@vote_attack
def coordinated(
    losses: Losses,
    honest_losses: Losses,
    honest_ballots: Sequence[Ballot],
    ages: Sequence[int],
    seats: int,
    ranks: int = 1,
) -> list[Ballot]:
    """Colluding voters remove the models that serve honest clients best, as many as they can."""
    if ranks == 1:
        return _against_plurality(len(losses), honest_losses, honest_ballots, ages, seats)
    return _against_ranking(len(losses), honest_losses, honest_ballots, ages, seats)


def _against_plurality(
    voters: int, honest_losses: Losses, honest_ballots: Sequence[Ballot], ages: Sequence[int], seats: int
) -> list[Ballot]:
    """Remove the honest clients' favourite if possible, else keep the worst models alive.

    A candidate can be removed if and only if `seats` others can be lifted over it, and lifting those that need the
    fewest ballots is best. If the favourite cannot be removed, the voters keep the `seats` candidates with the
    highest mean honest loss alive; if even that takes more ballots, they remove the best candidate that they can.
    """
    tally = first_choices(honest_ballots, len(ages))
    best_first = by_mean_loss(honest_losses)
    favourite = max(best_first, key=lambda position: tally[position])
    strongest_last = weakest_first(tally, ages)

    def others(victim: Position) -> list[Position]:
        return [position for position in strongest_last if position != victim][-seats:]

    plans = [([favourite], others(favourite)), (best_first[:-seats], best_first[-seats:])]
    plans += [([victim], others(victim)) for victim in best_first]
    for victims, targets in plans:
        ballots = lift(targets, tally, ages, voters)
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


def _against_ranking(
    voters: int, honest_losses: Losses, honest_ballots: Sequence[Ballot], ages: Sequence[int], seats: int
) -> list[Ballot]:
    """Remove as many as possible of the best models, beginning with the very best.

    To remove the best n is harder than to remove the best n − 1, so the largest n is found by bisection.
    """
    best_first = by_mean_loss(honest_losses)
    elimination = Elimination(honest_ballots, ages, seats)
    found = elimination.cheapest([])
    low, high = 0, len(ages) - seats
    while low < high:
        middle = (low + high + 1) // 2
        walk = elimination.cheapest(best_first[:middle], voters)
        low, high, found = (middle, high, walk) if walk else (low, middle - 1, found)
    assert found is not None
    return elimination.ballots(found, voters)


def by_mean_loss(losses: Losses) -> list[Position]:
    """Candidates from the best to the worst by mean loss, ties to the oldest."""
    mean_loss = losses.mean(0)
    return sorted(range(len(mean_loss)), key=lambda position: mean_loss[position])


def _as_ballots(choices: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> list[Ballot]:
    return [tuple(row) for row in choices.tolist()]
