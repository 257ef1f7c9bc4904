"""Elections: which candidates stay.

An election is one function of the ballots, the candidates' ages and the number of seats; it returns the positions
that go. Positions are in order of birth, so among equals the oldest is the one with the highest age and then the
lowest position. Ties remove the oldest: a new model survives a tie.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lidfl.protocol import first_choices
from lidfl.registry import Registry
from lidfl.types import Ballot, Losses, Position

election = Registry[list[Position]]("election", given=("ballots", "ages", "seats"))

NOBODY = -1
"""Fills up the rows of a matrix of ballots."""


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


@election
def ranked(ballots: Sequence[Ballot], ages: Sequence[int], seats: int) -> list[Position]:
    """The candidate with the fewest first choices among those standing goes, again and again.

    If k of m voters rank a set G of candidates above all others and k > m/(seats + 1), one of G stays, however
    many candidates there are: the last of G standing holds all k votes, and the least of `seats` others at most
    (m − k)/seats.

    >>> ranked([(0, 1), (0, 1), (1, 0), (2,), (2,)], ages=[0, 0, 0], seats=1)
    [1, 2]
    """
    matrix = ballot_matrix(ballots, len(ages))
    standing = np.ones(len(ages), dtype=bool)
    gone: list[Position] = []
    for _ in range(len(ages) - seats):
        tally = standing_choices(matrix, standing)
        loser = next(position for position in weakest_first(tally.tolist(), ages) if standing[position])
        standing[loser] = False
        gone.append(loser)
    return gone


SINGLE_CHOICE = {"plurality"}
"""Elections that ask for one choice; all others are given rankings of all candidates."""


def ballot_matrix(ballots: Sequence[Ballot], candidates: int) -> NDArray[np.int64]:
    """Ballots as rows of equal length, filled up with nobody."""
    matrix = np.full((len(ballots), candidates + 1), NOBODY)
    for row, ballot in zip(matrix, ballots, strict=True):
        row[: len(ballot)] = ballot
    return matrix


def standing_choices(matrix: NDArray[np.int64], standing: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many ballots have each candidate as the first of those that stand; one without any counts for none."""
    counts = np.append(standing, False)[matrix]  # NOBODY, as an index, is the last place: it never stands
    first = matrix[np.arange(len(matrix)), counts.argmax(1)]
    return np.bincount(first[counts.any(1)], minlength=len(standing))


def put_last(losses: Losses, last: NDArray[np.bool_]) -> Losses:
    """Losses by which what is put last comes after everything else, in its own order."""
    finite = np.where(np.isfinite(losses), losses, 0)
    room = finite.max(1, keepdims=True) - finite.min(1, keepdims=True) + 1
    return np.where(last, losses + room, losses)


def honest_ballots(losses: Losses, ranks: int = 1) -> list[Ballot]:
    """The paper's step 4: each ranks by rising loss, ties to the oldest; what has loss +inf is left out.

    With one rank that is a vote for the lowest loss; who sees only +inf abstains.
    """
    if ranks == 1:  # without sorting
        best, finite = losses.argmin(1), np.isfinite(losses.min(1))
        return [(int(choice),) if votes else () for choice, votes in zip(best, finite, strict=True)]
    order = losses.argsort(1, kind="stable")
    known = np.isfinite(losses).sum(1)
    return [tuple(row[: min(ranks, count)]) for row, count in zip(order.tolist(), known.tolist(), strict=True)]
