"""What voters who collude can do, given the ballots of all others: the power behind `coordinated` and the margin.

**Plurality.** A candidate goes if and only if `seats` others get ahead of it, and those that need the fewest
ballots are the ones to lift.

**Ranked ballots.** Colluders who want to see a given *order of elimination* need, at each of its steps, that the
one to go is the weakest of those standing. Support that they lend to a candidate stays until it goes, and can then
be lent to another, since a ballot moves on to its next choice. So, walking along the order, the least support that
does is found step by step, and the largest sum of it that is in use at any step is exactly how many ballots the
order costs. What colluders can reach is then a search over orders, cheapest first.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

import numpy as np

from lidfl.elections import ballot_matrix, first_choices, plurality, ranked, standing_choices, weakest_first
from lidfl.types import Ballot, Position

STEPS = 400
"""How many partial orders a search looks at: all of them for up to five candidates, the cheapest beyond."""


@dataclass(frozen=True, order=True)
class Walk:
    """An order of elimination so far, and what it takes."""

    cost: int
    """How many colluding ballots are in use at its most expensive step."""
    left: int
    """How many candidates are still to go; of two walks that cost the same, the longer comes first."""
    order: tuple[Position, ...]
    support: tuple[int, ...]
    """How many colluding ballots each candidate holds now."""


class Elimination:
    """Repeated elimination under ballots that are cast, with colluders still to come."""

    def __init__(self, ballots: Sequence[Ballot], ages: Sequence[int], seats: int) -> None:
        self.matrix = ballot_matrix(ballots, len(ages))
        self.seats = seats
        self.size = len(ages)
        rank = {position: place for place, position in enumerate(weakest_first([0] * self.size, ages))}
        self.behind = [[int(rank[c] < rank[e]) for e in range(self.size)] for c in range(self.size)]
        """behind[c][e]: with equal votes c goes before e, so to outlive e it needs one more."""
        self._tallies: dict[frozenset[Position], list[int]] = {}

    def tally(self, gone: Collection[Position]) -> list[int]:
        """First choices among those standing, without the colluders."""
        key = frozenset(gone)
        if key not in self._tallies:
            standing = np.ones(self.size, dtype=bool)
            standing[list(key)] = False
            self._tallies[key] = standing_choices(self.matrix, standing).tolist()
        return self._tallies[key]

    def step(self, walk: Walk, loser: Position) -> Walk:
        """The walk with one more candidate gone, by the least support that makes it the weakest."""
        tally = self.tally(walk.order)
        votes = tally[loser] + walk.support[loser]
        support = list(walk.support)
        for other in range(self.size):
            if other != loser and other not in walk.order:
                support[other] = max(support[other], votes + self.behind[other][loser] - tally[other])
        cost = max(walk.cost, sum(support))
        support[loser] = 0
        return Walk(cost, walk.left - 1, (*walk.order, loser), tuple(support))

    def cheapest(self, victims: Collection[Position], budget: float = inf) -> Walk | None:
        """The cheapest order that a search finds in which all victims go; None if it is over the budget."""
        start = Walk(0, self.size - self.seats, (), (0,) * self.size)
        waiting, seen = [start], set()
        for _ in range(STEPS):
            if not waiting:
                return None
            walk = heappop(waiting)
            if walk.left == 0:
                return walk
            for following in self._steps(walk, victims):
                key = frozenset(following.order), following.support
                if following.cost <= budget and key not in seen:
                    seen.add(key)
                    heappush(waiting, following)
        return self._straight(start, victims, budget)

    def _steps(self, walk: Walk, victims: Collection[Position]) -> Iterator[Walk]:
        spare = walk.left - sum(victim not in walk.order for victim in victims)
        for loser in range(self.size):
            if loser not in walk.order and (spare > 0 or loser in victims):
                yield self.step(walk, loser)

    def _straight(self, walk: Walk, victims: Collection[Position], budget: float) -> Walk | None:
        """Where the search gives up: at each step the cheapest."""
        while walk.left:
            walk = min(self._steps(walk, victims))
        return walk if walk.cost <= budget else None

    def ballots(self, walk: Walk, count: int) -> list[Ballot]:
        """Ballots that bring a walk about: each lends support, and moves on when what it supported goes.

        A ballot that is needed late can support its candidate from the start, which stands until then anyway.
        """
        survivors = [position for position in range(self.size) if position not in walk.order]
        held: dict[Position, list[list[Position]]] = {position: [] for position in range(self.size)}
        free: list[list[Position]] = []
        idle: list[list[Position]] = [[] for _ in range(count)]
        replay = Walk(0, walk.left + len(walk.order), (), (0,) * self.size)
        for loser in walk.order:
            before, replay = replay, self.step(replay, loser)
            for position, support in enumerate(replay.support):
                for _ in range(support - before.support[position] if position != loser else 0):
                    ballot = (free or idle).pop()
                    ballot.append(position)
                    held[position].append(ballot)
            free += held.pop(loser)
        everyone = [ballot for ballots in held.values() for ballot in ballots] + free + idle
        return [tuple(dict.fromkeys([*ballot, *survivors])) for ballot in everyone]


def lift_cost(victim: Position, tally: Sequence[int], ages: Sequence[int], seats: int) -> int:
    """How many ballots lift `seats` others over a candidate under plurality.

    >>> lift_cost(0, [5, 3, 1], ages=[0, 0, 0], seats=1)
    2
    """
    rank = {position: place for place, position in enumerate(weakest_first([0] * len(ages), ages))}
    needs = [
        max(0, tally[victim] + (rank[other] < rank[victim]) - tally[other])
        for other in range(len(ages))
        if other != victim
    ]
    return sum(sorted(needs)[:seats])


def removal_cost(victim: Position, ballots: Sequence[Ballot], ages: Sequence[int], seats: int, ranks: int) -> int:
    """How many ballots, besides those that are cast, would remove a candidate: the margin by which it stays.

    Exact for plurality. With ranked ballots it is the cheapest order of elimination that the search finds.
    """
    if ranks == 1:
        return lift_cost(victim, first_choices(ballots, len(ages)), ages, seats)
    walk = Elimination(ballots, ages, seats).cheapest([victim])
    assert walk is not None
    return walk.cost


def margin(
    honest: Sequence[Ballot], others: Sequence[Ballot], ages: Sequence[int], seats: int, ranks: int
) -> int | None:
    """How many more colluding ballots would have removed the favourite of the honest voters; 0 if it went.

    Their favourite is whom they would elect to a single seat among themselves.
    """
    if not any(honest) or seats >= len(ages):
        return None
    elect = plurality if ranks == 1 else ranked
    (favourite,) = set(range(len(ages))) - set(elect(honest, ages, 1))
    return removal_cost(favourite, [*honest, *others], ages, seats, ranks)
