"""What voters who collude can do, given the ballots of all others: the power behind `coordinated` and the margin.

**Plurality.** A candidate goes if and only if `seats` others get ahead of it, and those that need the fewest
ballots are the ones to lift.

**Ranked ballots.** Colluders who want to see a given *order of elimination* need, at each of its steps, that the
one to go is the weakest of those standing. Support that they lend to a candidate stays until it goes, and can then
be lent to another, since a ballot moves on to its next choice. So, walking along the order, the least support that
does is found step by step, and the largest sum of it that is in use at any step is exactly how many ballots the
order costs. What colluders can reach is then a search over orders, cheapest first.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

import numpy as np

from lidfl.methods.elections import ballot_matrix, plurality, ranked, standing_choices, weakest_first
from lidfl.protocol import first_choices
from lidfl.types import Ballot, Position

SEARCHED = 2000
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
        rank = np.argsort(weakest_first([0] * self.size, ages))
        self.behind = (rank[None, :] < rank[:, None]).astype(np.int64)
        """behind[e, c]: with equal votes c goes before e, so to outlive e it needs one more."""

    @property
    def start(self) -> Walk:
        """Nobody has gone."""
        return Walk(0, self.size - self.seats, (), (0,) * self.size)

    def steps(self, walk: Walk) -> list[Walk]:
        """The walk with one more candidate gone, for each, by the least support that makes it the weakest."""
        standing = np.ones(self.size, dtype=bool)
        standing[list(walk.order)] = False
        tally, held = standing_choices(self.matrix, standing), np.array(walk.support)
        losers = np.flatnonzero(standing)
        needed = (tally + held)[losers, None] + self.behind[losers] - tally
        support = np.where(standing, np.maximum(needed, held), 0)
        support[np.arange(len(losers)), losers] = held[losers]  # the one to go gets no more
        costs = np.maximum(support.sum(1), walk.cost).tolist()
        support[np.arange(len(losers)), losers] = 0
        return [
            Walk(cost, walk.left - 1, (*walk.order, loser), tuple(row))
            for cost, loser, row in zip(costs, losers.tolist(), support.tolist(), strict=True)
        ]

    def cheapest(self, victims: Collection[Position], budget: float = inf) -> Walk | None:
        """The cheapest order that a search finds in which all victims go; None if it is over the budget."""
        waiting, seen = [self.start], set()
        looked_at = 0
        while waiting and looked_at < SEARCHED // self.size:
            walk = heappop(waiting)
            if walk.left == 0:
                return walk
            state = frozenset(walk.order), walk.support
            if state not in seen:  # else it was reached for less
                seen.add(state)
                looked_at += 1
                for following in self._towards(victims, walk):
                    if following.cost <= budget:
                        heappush(waiting, following)
        return self._straight(victims, budget) if waiting else None

    def _towards(self, victims: Collection[Position], walk: Walk) -> list[Walk]:
        """The steps that leave room for all victims to go."""
        spare = walk.left - sum(victim not in walk.order for victim in victims)
        return [following for following in self.steps(walk) if spare > 0 or following.order[-1] in victims]

    def _straight(self, victims: Collection[Position], budget: float) -> Walk | None:
        """Where the search gives up: at each step the cheapest."""
        walk = self.start
        while walk.left:
            walk = min(self._towards(victims, walk))
        return walk if walk.cost <= budget else None

    def ballots(self, walk: Walk, count: int) -> list[Ballot]:
        """Ballots that bring a walk about: each lends support, and moves on when what it supported goes.

        A ballot that is needed late can support its candidate from the start, which stands until then anyway.
        """
        survivors = [position for position in range(self.size) if position not in walk.order]
        held: dict[Position, list[list[Position]]] = {position: [] for position in range(self.size)}
        free: list[list[Position]] = []
        idle: list[list[Position]] = [[] for _ in range(count)]
        replay = self.start
        for loser in walk.order:
            before, replay = replay, next(step for step in self.steps(replay) if step.order[-1] == loser)
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
