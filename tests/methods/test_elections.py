"""The least-voted go; honest voters name their best; no coalition of enough honest voters loses its last model."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement, permutations, product
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng
from numpy.typing import NDArray

from lidfl.adversaries.vote_attacks import coordinated, none, random, vote_attack, worst
from lidfl.methods.elections import election, honest_ballots, plurality, put_last, ranked, weakest_first
from lidfl.protocol import first_choices
from lidfl.types import Ballot, Losses, Position

INF = np.inf
quick = settings(max_examples=60)


def one_by_one(ballots: Sequence[Ballot], ages: Sequence[int], seats: int) -> set[Position]:
    """Brute force: while too many stand, the one goes that no other one should go before."""
    votes = Counter(ballot[0] for ballot in ballots if ballot)
    standing = set(range(len(ages)))
    while len(standing) > seats:
        fewest = min(votes[position] for position in standing)
        least = [position for position in standing if votes[position] == fewest]
        oldest = max(ages[position] for position in least)
        standing.remove(min(position for position in least if ages[position] == oldest))
    return set(range(len(ages))) - standing


# Plurality.


@pytest.mark.parametrize(
    ("ballots", "ages", "seats", "gone"),
    [
        ([(0,), (0,), (2,)], [4, 1, 0], 2, [1]),  # no vote
        ([(0,), (1,), (1,), (2,), (2,)], [0, 5, 9], 2, [0]),  # fewest votes, though the youngest
        ([(0,), (1,), (2,)], [1, 3, 0], 2, [1]),  # a tie: the oldest
        ([(0,), (1,), (2,)], [3, 3, 0], 2, [0]),  # as old: the lowest position
        ([(1,), (2,)], [2, 2, 0], 1, [0, 1]),  # two go: first no vote, then the older
        ([(0,), (0,), ()], [3, 0], 1, [1]),  # an abstention is no vote
        ([(), ()], [3, 0], 1, [0]),  # nobody chose: the oldest
        ([], [7, 7, 0], 2, [0]),  # nobody came: the oldest
        ([(1,)], [1, 0], 2, []),  # a seat for everyone
    ],
)
def test_the_least_voted_go_and_among_equals_the_oldest(
    ballots: list[Ballot], ages: list[int], seats: int, gone: list[Position]
) -> None:
    assert plurality(ballots, ages, seats) == gone


def ballots_for(candidates: int, max_size: int = 9) -> st.SearchStrategy[list[Ballot]]:
    choice = st.integers(0, candidates - 1).map(lambda position: (position,))
    return st.lists(st.one_of(st.just(()), choice), max_size=max_size)


def ages_for(candidates: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, 3), min_size=candidates, max_size=candidates)


@given(data=st.data(), candidates=st.integers(1, 6))
@settings(max_examples=120)
def test_plurality_is_the_removal_of_one_after_another(data: st.DataObject, candidates: int) -> None:
    ballots, ages = data.draw(ballots_for(candidates)), data.draw(ages_for(candidates))
    seats = data.draw(st.integers(1, candidates))
    gone = plurality(ballots, ages, seats)
    assert len(gone) == candidates - seats
    assert set(gone) == one_by_one(ballots, ages, seats)


@pytest.mark.parametrize("name", list(election))
@given(data=st.data(), candidates=st.integers(2, 6), seed=st.integers(0, 2**32))
@quick
def test_the_order_of_voters_changes_nothing(name: str, data: st.DataObject, candidates: int, seed: int) -> None:
    ballots, ages = data.draw(ballots_for(candidates)), data.draw(ages_for(candidates))
    shuffled = [ballots[voter] for voter in default_rng(seed).permutation(len(ballots))]
    elect = election.resolve(name)
    assert elect(shuffled, ages, candidates - 1) == elect(ballots, ages, candidates - 1)


def test_only_first_choices_are_counted() -> None:
    assert first_choices([(2, 0), (), (2,), (0, 1, 2)], 4) == [1, 0, 2, 0]


def test_the_first_to_go_has_the_fewest_votes_and_then_the_highest_age() -> None:
    assert weakest_first([1, 0, 0, 1, 0], [0, 2, 5, 3, 5]) == [2, 4, 1, 3, 0]


# Honest voters.


@pytest.mark.parametrize(
    ("losses", "ballot"),
    [
        ([3.0, 1.0, 2.0], (1,)),
        ([2.0, 1.0, 1.0], (1,)),  # a tie: the lowest index
        ([INF, 9e9, INF], (1,)),
        ([INF, INF, INF], ()),
    ],
)
def test_an_honest_voter_names_its_lowest_finite_loss(losses: list[float], ballot: Ballot) -> None:
    assert honest_ballots(np.array([losses])) == [ballot]
    assert none(np.array([losses])) == [ballot]


def losses_like(voters: int, candidates: int) -> st.SearchStrategy[Losses]:
    return table(st.sampled_from([0.0, 0.5, 1.0, 2.0, INF]), voters, candidates)


def table(values: st.SearchStrategy[Any], voters: int, candidates: int) -> st.SearchStrategy[NDArray[Any]]:
    row = st.lists(values, min_size=candidates, max_size=candidates)
    return st.lists(row, min_size=voters, max_size=voters).map(np.array)


@given(losses=st.tuples(st.integers(1, 5), st.integers(1, 5)).flatmap(lambda shape: losses_like(*shape)))
@quick
def test_each_honest_ballot_is_the_first_of_the_lowest_losses(losses: Losses) -> None:
    for row, ballot in zip(losses.tolist(), honest_ballots(losses), strict=True):
        assert ballot == (() if min(row) == INF else (row.index(min(row)),))


@given(data=st.data(), voters=st.integers(1, 4), candidates=st.integers(1, 5), ranks=st.integers(1, 6))
@quick
def test_an_honest_ranking_is_by_rising_loss_as_long_as_asked_for_and_leaves_out_what_is_not_finite(
    data: st.DataObject, voters: int, candidates: int, ranks: int
) -> None:
    losses = data.draw(losses_like(voters, candidates))
    for row, ballot in zip(losses.tolist(), honest_ballots(losses, ranks), strict=True):
        known = [position for position in range(candidates) if row[position] < INF]
        assert ballot == tuple(sorted(known, key=row.__getitem__)[:ranks])


def test_ballots_hold_plain_integers() -> None:
    losses = np.array([[1.0, 0.0], [0.0, 1.0]])
    for ballots in (honest_ballots(losses), worst(losses), random(losses, default_rng(0))):
        assert [type(choice) for ballot in ballots for choice in ballot] == [int, int]


# Worst and Random voters.


def test_worst_names_its_own_highest_loss() -> None:
    losses = np.array([[3.0, 1.0, 2.0], [0.0, 5.0, INF], [1.0, 2.0, 2.0]])
    assert worst(losses) == [(0,), (2,), (1,)]


def test_random_names_each_but_its_best_equally_often() -> None:
    losses = np.tile([5.0, 3.0, 1.0, INF, 9.0], (8000, 1))
    votes = first_choices(random(losses, default_rng(0)), 5)
    assert votes[2] == 0
    # Four are left, 2000 votes each; the standard deviation of a count is below 39.
    assert all(abs(count - 2000) < 200 for position, count in enumerate(votes) if position != 2)


def test_random_judges_by_each_voters_own_best() -> None:
    best = np.arange(2000) % 3
    losses = 1.0 - np.eye(3)[best]
    ballots = random(losses, default_rng(1))
    assert all(ballot != (favourite,) for ballot, favourite in zip(ballots, best.tolist(), strict=True))


def test_random_of_two_candidates_names_the_other() -> None:
    assert random(np.array([[1.0, 2.0], [2.0, 1.0]]), default_rng(0)) == [(1,), (0,)]


# Coordinated voters, against every assignment of ballots.


class Contest(NamedTuple):
    """An election as colluding voters see it."""

    honest: list[Ballot]
    ages: list[int]
    seats: int
    losses: list[float]
    """The mean honest loss of each candidate: no two are the same."""
    byzantine: int

    @property
    def candidates(self) -> range:
        return range(len(self.ages))

    def survivors(self, forged: Sequence[Ballot]) -> set[Position]:
        return set(self.candidates) - one_by_one([*self.honest, *forged], self.ages, self.seats)

    def possible(self) -> list[set[Position]]:
        """Who survives, for every way in which the Byzantine voters can vote or abstain."""
        choices: list[Ballot] = [(), *((position,) for position in self.candidates)]
        return [self.survivors(votes) for votes in combinations_with_replacement(choices, self.byzantine)]

    @property
    def favourite(self) -> Position:
        votes = Counter(ballot[0] for ballot in self.honest if ballot)
        return max(self.candidates, key=lambda position: (votes[position], -self.losses[position]))

    @property
    def worst(self) -> set[Position]:
        return set(sorted(self.candidates, key=lambda position: -self.losses[position])[: self.seats])

    def forged(self) -> list[Ballot]:
        """What coordinated voters cast; honest losses differ between voters, only their mean is told."""
        spread = np.outer([0.25, 0.0, -0.25], np.ones(len(self.ages)))
        own = np.zeros((self.byzantine, len(self.ages)))
        return coordinated(own, np.array(self.losses) + spread, self.honest, self.ages, self.seats)


def assert_no_better_plan(contest: Contest) -> None:
    """Coordinated voters remove the favourite if anyone could, else keep exactly the worst if anyone could.

    If neither can be done, and one candidate goes, it is the best that anyone could remove.
    """
    forged = contest.forged()
    survivors, possible = contest.survivors(forged), contest.possible()
    assert len(forged) == contest.byzantine
    if any(contest.favourite not in others for others in possible):
        assert contest.favourite not in survivors
    elif contest.worst in possible:
        assert survivors == contest.worst
    elif contest.seats == len(contest.ages) - 1:
        best_removed = min(contest.losses[gone] for others in possible for gone in set(contest.candidates) - others)
        assert {contest.losses[gone] for gone in set(contest.candidates) - survivors} == {best_removed}


def small_contests(candidates: int) -> Iterator[Contest]:
    """Every tally of up to 4 honest ballots, every number of seats and of up to 4 Byzantine voters."""
    orders = list(permutations(map(float, range(candidates))))
    rng = default_rng(candidates)
    single: list[Ballot] = [(position,) for position in range(candidates)]
    for voters, byzantine, seats in product(range(1, 5), range(5), range(1, candidates)):
        for honest in combinations_with_replacement(single, voters):
            for ages in ([5] * (candidates - 1) + [0], list(range(candidates, 0, -1)), [0, 2, 1, 2]):
                losses = orders[rng.integers(len(orders))]
                yield Contest(list(honest), ages[:candidates], seats, list(losses), byzantine)


@pytest.mark.parametrize("candidates", [2, 3, 4])
def test_no_plan_beats_coordinated_voters_in_any_small_election(candidates: int) -> None:
    for contest in small_contests(candidates):
        assert_no_better_plan(contest)


@st.composite
def contests(draw: st.DrawFn) -> Contest:
    candidates = draw(st.integers(2, 5))
    return Contest(
        honest=draw(ballots_for(candidates, 7)),
        ages=draw(ages_for(candidates)),
        seats=draw(st.integers(1, candidates - 1)),
        losses=draw(st.permutations([float(loss) for loss in range(candidates)])),
        byzantine=draw(st.integers(0, 5)),
    )


@given(contest=contests())
@settings(max_examples=100)
def test_no_plan_beats_coordinated_voters(contest: Contest) -> None:
    assert_no_better_plan(contest)


def test_coordinated_voters_remove_a_favourite_that_stands_alone() -> None:
    # Honest votes 2, 1, 1: lifting the other two over the favourite takes one ballot each, as it is the oldest.
    contest = Contest([(0,), (0,), (1,), (2,)], [3, 1, 0], 2, [0.1, 0.5, 0.9], 2)
    assert sorted(contest.forged()) == [(1,), (2,)]
    assert contest.survivors(contest.forged()) == {1, 2}


def test_coordinated_voters_who_cannot_remove_the_favourite_keep_the_worst() -> None:
    # Honest votes 3, 1, 0, and the favourite of the many is among the two worst on the whole.
    contest = Contest([(0,), (0,), (0,), (1,)], [3, 1, 0], 2, [0.9, 0.1, 0.5], 2)
    assert contest.forged() == [(2,), (2,)]
    assert contest.survivors(contest.forged()) == {0, 2}


# The guarantee: a coalition of more than m/(seats + 1) honest voters keeps a model that it trusts.


def quota(voters: int, seats: int) -> int:
    """The smallest k with k > m/(seats + 1)."""
    return voters // (seats + 1) + 1


@given(data=st.data(), seats=st.integers(1, 5), voters=st.integers(1, 20))
@settings(max_examples=120)
def test_honest_voters_who_agree_on_some_models_never_lose_the_last(
    data: st.DataObject, seats: int, voters: int
) -> None:
    candidates = seats + 1
    trusted = data.draw(st.sets(st.integers(0, candidates - 1), min_size=1))
    honest = data.draw(st.integers(quota(voters, seats), voters))
    choices = st.sampled_from(sorted(trusted)).map(lambda position: (position,))
    ballots = data.draw(st.lists(choices, min_size=honest, max_size=honest))
    forged = data.draw(ballots_for(candidates, voters - honest))
    gone = plurality([*ballots, *forged], data.draw(ages_for(candidates)), seats)
    assert trusted - set(gone)


@pytest.mark.parametrize(("voters", "seats"), [(m, q) for m in range(1, 8) for q in range(1, 4)])
def test_the_only_choice_of_a_quota_survives_whatever_the_others_cast(voters: int, seats: int) -> None:
    honest = quota(voters, seats)
    choices: list[Ballot] = [(), *((position,) for position in range(seats + 1))]
    for forged in combinations_with_replacement(choices, voters - honest):
        for chosen in range(seats + 1):
            ages = [9 if position == chosen else 0 for position in range(seats + 1)]
            assert chosen not in plurality([*[(chosen,)] * honest, *forged], ages, seats)


@pytest.mark.parametrize("seats", [1, 2, 3])
def test_one_voter_below_the_quota_is_not_enough(seats: int) -> None:
    voters = 2 * (seats + 1)
    forged = [(position,) for position in range(1, seats + 1)] * 2
    ballots = [(0,)] * (quota(voters, seats) - 1) + forged
    assert len(ballots) == voters
    assert plurality(ballots, [1] + [0] * seats, seats) == [0]


# Promises of every vote attack.


@pytest.mark.parametrize("name", list(vote_attack))
@given(data=st.data(), voters=st.integers(1, 5), candidates=st.integers(2, 5), seed=st.integers(0, 2**32))
@quick
def test_every_vote_attack_casts_one_valid_ballot_a_voter(
    name: str, data: st.DataObject, voters: int, candidates: int, seed: int
) -> None:
    own, honest = data.draw(losses_like(voters, candidates)), data.draw(losses_like(3, candidates))
    before = own.copy(), honest.copy()
    ballots = vote_attack.resolve(name)(
        losses=own,
        honest_losses=honest,
        honest_ballots=honest_ballots(honest),
        ages=data.draw(ages_for(candidates)),
        seats=data.draw(st.integers(1, candidates - 1)),
        rng=default_rng(seed),
    )
    assert len(ballots) == voters
    assert all(len(ballot) <= 1 and set(ballot) <= set(range(candidates)) for ballot in ballots)
    assert (own == before[0]).all()
    assert (honest == before[1]).all()


# Ranked ballots.


def instant_runoff(ballots: Sequence[Ballot], ages: Sequence[int], seats: int) -> list[Position]:
    """Brute force: every ballot counts for the first that it names of those standing, or for nobody."""
    standing, gone = list(range(len(ages))), []
    while len(standing) > seats:
        named = [[choice for choice in ballot if choice in standing][:1] for ballot in ballots]
        votes = Counter(choice for first in named for choice in first)
        gone.append(min(standing, key=lambda position: (votes[position], -ages[position], position)))
        standing.remove(gone[-1])
    return gone


@given(data=st.data(), candidates=st.integers(1, 5))
@settings(max_examples=120)
def test_ranked_ballots_that_end_early_count_for_nobody_once_all_that_they_name_are_gone(
    data: st.DataObject, candidates: int
) -> None:
    ballot = st.lists(st.integers(0, candidates - 1), unique=True).map(tuple)
    ballots, ages = data.draw(st.lists(ballot, max_size=9)), data.draw(ages_for(candidates))
    seats = data.draw(st.integers(1, candidates))
    assert ranked(ballots, ages, seats) == instant_runoff(ballots, ages, seats)


@given(data=st.data(), voters=st.integers(1, 4), candidates=st.integers(1, 4))
@settings(max_examples=120)
def test_what_is_put_last_comes_after_all_else_that_is_known_in_its_own_order(
    data: st.DataObject, voters: int, candidates: int
) -> None:
    numbers = st.sampled_from([-3.0, -0.5, 0.0, 0.25, 1.0, 7.0, INF])
    losses = data.draw(table(numbers, voters, candidates))
    last = data.draw(table(st.booleans(), voters, candidates))
    for before, worse, after in zip(losses.tolist(), last.tolist(), put_last(losses, last).tolist(), strict=True):
        known = [position for position in range(candidates) if before[position] < INF]
        assert [after[position] for position in range(candidates) if not worse[position]] == [
            before[position] for position in range(candidates) if not worse[position]
        ]
        assert sorted(known, key=after.__getitem__) == sorted(known, key=lambda p: (worse[p], before[p]))
        assert {position for position, loss in enumerate(after) if loss < INF} == set(known)
