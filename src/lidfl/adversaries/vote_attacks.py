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

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.random import Generator

from lidfl.adversaries.collusion import Elimination
from lidfl.errors import LidflError
from lidfl.methods.elections import honest_ballots, plurality, weakest_first
from lidfl.protocol import first_choices
from lidfl.registry import Registry
from lidfl.types import Ballot, Losses, Position

CONTEXT = frozenset({"losses", "honest_losses", "honest_ballots", "ages", "seats", "ranks", "rng"})
vote_attack = Registry[list[Ballot]]("vote attack", CONTEXT, given=())


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
    *,
    aim: str = "auto",
) -> list[Ballot]:
    """Colluding voters remove the honest clients' favourite, or the models that serve them best (`aim=best`).

    Against single choices they aim at the favourite unless told otherwise, against rankings at the best: as many as
    they can of the models with the lowest mean honest loss, beginning with the very best.
    """
    if aim not in ("auto", "favourite", "best"):
        raise LidflError(f"unknown aim '{aim}'; choose from auto, favourite, best")
    remove = partial(_by_plurality if ranks == 1 else _by_ranking, len(losses), honest_ballots, ages, seats)
    if aim == "best" or (aim == "auto" and ranks > 1):
        return _remove_the_best(remove, honest_losses, seats)
    return _remove_the_favourite(remove, honest_losses, first_choices(honest_ballots, len(ages)), seats)


Remove: TypeAlias = Callable[[Sequence[Position]], list[Ballot] | None]
"""From the candidates that shall go to the ballots that make them go, if there are any."""


def _by_plurality(
    voters: int, honest_ballots: Sequence[Ballot], ages: Sequence[int], seats: int, victims: Sequence[Position]
) -> list[Ballot] | None:
    """Single choices that remove all victims, if there are any: they lift the strongest others."""
    tally = first_choices(honest_ballots, len(ages))
    targets = [position for position in weakest_first(tally, ages) if position not in victims][-seats:]
    ballots = lift(targets, tally, ages, voters)
    return ballots if set(victims) <= set(plurality([*honest_ballots, *ballots], ages, seats)) else None


def _by_ranking(
    voters: int, honest_ballots: Sequence[Ballot], ages: Sequence[int], seats: int, victims: Sequence[Position]
) -> list[Ballot] | None:
    """Rankings that remove all victims, if a search finds any."""
    elimination = Elimination(honest_ballots, ages, seats)
    walk = elimination.cheapest(victims, voters)
    return elimination.ballots(walk, voters) if walk else None


def _remove_the_best(remove: Remove, honest_losses: Losses, seats: int) -> list[Ballot]:
    """Remove as many as possible of the best models, beginning with the very best; else the worst that can go.

    To remove the best n is harder than to remove the best n − 1, so the largest n is found by bisection. If not
    even the best can go, it is because honest voters agree on it. The voters then bide their time: they see to it
    that good models remain between which honest votes will split, and the list creeps backwards from there.
    """
    best_first = by_mean_loss(honest_losses)
    found, low, high = None, 0, len(best_first) - seats
    while low < high:
        middle = (low + high + 1) // 2
        ballots = remove(best_first[:middle])
        low, high, found = (low, middle - 1, found) if ballots is None else (middle, high, ballots)
    if found is None:
        worst_first = best_first[::-1]
        plans = (remove(victims) for victims in (worst_first[:-seats], *([victim] for victim in worst_first)))
        found = next((plan for plan in plans if plan is not None), [])
    return found


def _remove_the_favourite(remove: Remove, honest_losses: Losses, tally: Sequence[int], seats: int) -> list[Ballot]:
    """Remove the honest clients' favourite if possible, else keep the worst models alive.

    A candidate can be removed if and only if `seats` others can be lifted over it, and lifting those that need the
    fewest ballots is best. If the favourite cannot be removed, the voters keep the `seats` candidates with the
    highest mean honest loss alive; if even that takes more ballots, they remove the best candidate that they can.
    """
    best_first = by_mean_loss(honest_losses)
    favourite = max(best_first, key=lambda position: tally[position])
    for victims in ([favourite], best_first[:-seats], *([victim] for victim in best_first)):
        ballots = remove(victims)
        if ballots is not None:
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


def by_mean_loss(losses: Losses) -> list[Position]:
    """Candidates from the best to the worst by mean loss, ties to the oldest."""
    mean_loss = losses.mean(0)
    return sorted(range(len(mean_loss)), key=lambda position: mean_loss[position])


def _as_ballots(choices: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> list[Ballot]:
    return [tuple(row) for row in choices.tolist()]
