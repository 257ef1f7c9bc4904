"""Ranked ballots: repeated elimination, its guarantee, and what colluding voters can do against it."""

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations_with_replacement, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from lidfl.adversaries.collusion import Elimination, Walk, lift_cost, margin, removal_cost
from lidfl.adversaries.vote_attacks import coordinated, random, worst
from lidfl.errors import LidflError
from lidfl.methods.elections import honest_ballots, plurality, ranked
from lidfl.protocol import first_choices
from lidfl.types import Ballot, Position

INF = np.inf


def by_hand(ballots: Sequence[Ballot], ages: Sequence[int], seats: int) -> list[Position]:
    """Brute force: strike out whoever is first on the fewest ballots, as one would with pencil and paper."""
    standing = list(range(len(ages)))
    gone = []
    while len(standing) > seats:
        left = [[name for name in ballot if name in standing] for ballot in ballots]
        votes = {name: sum(ballot[:1] == [name] for ballot in left) for name in standing}
        fewest = [name for name in standing if votes[name] == min(votes.values())]
        oldest = [name for name in fewest if ages[name] == max(ages[name] for name in fewest)]
        gone.append(min(oldest))
        standing.remove(gone[-1])
    return gone


def rankings(candidates: int) -> st.SearchStrategy[Ballot]:
    """Any ranking, whole or partial."""
    whole = st.permutations(range(candidates))
    return st.tuples(whole, st.integers(0, candidates)).map(lambda pair: tuple(pair[0][: pair[1]]))


@pytest.mark.parametrize(
    ("ballots", "ages", "seats", "gone"),
    [
        ([(0, 1), (0, 1), (1, 0), (2,), (2,)], [0, 0, 0], 1, [1, 2]),  # 1 goes, its vote lifts 0 over 2
        ([(0,), (1,), (2,)], [1, 3, 0], 1, [1, 0]),  # ties: the oldest, then the next oldest
        ([(0, 2), (1, 2), (2,)], [0, 0, 9], 1, [2, 0]),  # whom all could live with may go first
        ([(), (), (1,)], [0, 0], 1, [0]),  # abstentions count for none
        ([(2,), (1,), (1,), (0,), (0,)], [0, 0, 0], 1, [2, 0]),  # an exhausted ballot counts for none
        ([], [5, 0, 0], 2, [0]),
        ([(1, 0)], [0, 0], 2, []),
    ],
)
def test_the_weakest_goes_again_and_again(
    ballots: list[Ballot], ages: list[int], seats: int, gone: list[Position]
) -> None:
    assert ranked(ballots, ages, seats) == gone


@given(data=st.data(), candidates=st.integers(1, 6), voters=st.integers(0, 9))
@settings(max_examples=200)
def test_any_election_ends_as_with_pencil_and_paper(data: st.DataObject, candidates: int, voters: int) -> None:
    ballots = data.draw(st.lists(rankings(candidates), min_size=voters, max_size=voters))
    ages = data.draw(st.lists(st.integers(0, 3), min_size=candidates, max_size=candidates))
    seats = data.draw(st.integers(1, candidates))
    assert ranked(ballots, ages, seats) == by_hand(ballots, ages, seats)


@given(data=st.data(), seats=st.integers(1, 4), others=st.integers(0, 5), voters=st.integers(1, 15))
@settings(max_examples=200)
def test_a_quota_that_prefers_some_models_to_the_rest_never_loses_the_last_of_them(
    data: st.DataObject, seats: int, others: int, voters: int
) -> None:
    candidates = seats + 1 + others
    trusted = sorted(data.draw(st.sets(st.integers(0, candidates - 1), min_size=1)))
    honest = data.draw(st.integers(voters // (seats + 1) + 1, voters))
    rest = [position for position in range(candidates) if position not in trusted]
    solid = st.tuples(st.permutations(trusted), st.permutations(rest)).map(lambda pair: (*pair[0], *pair[1]))
    ballots = data.draw(st.lists(solid, min_size=honest, max_size=honest))
    forged = data.draw(st.lists(rankings(candidates), min_size=voters - honest, max_size=voters - honest))
    ages = data.draw(st.lists(st.integers(0, 9), min_size=candidates, max_size=candidates))
    assert set(trusted) - set(ranked([*ballots, *forged], ages, seats))


def test_several_candidates_cost_all_good_models_under_plurality_and_never_under_ranked_ballots() -> None:
    # Two seats, 14 honest voters of 35 who like five good models 3-3-3-3-2; colluders put 21 votes on two bad ones.
    good, bad = range(5), (5, 6)
    liked = [good[voter % 5] for voter in range(14)]
    honest = [(first, *(name for name in good if name != first), *bad) for first in liked]
    ages = [3, 3, 0, 0, 0, 0, 0]
    forged: list[Ballot] = [(bad[voter % 2], bad[1 - voter % 2]) for voter in range(21)]
    single = [ballot[:1] for ballot in [*honest, *forged]]
    assert set(good) <= set(plurality(single, ages, seats=2))
    assert len(set(good) - set(ranked([*honest, *forged], ages, seats=2))) == 1
    losses = np.array([[0.1 * ballot.index(name) for name in range(7)] for ballot in honest])
    strongest = coordinated(np.zeros((21, 7)), losses, honest, ages, 2, ranks=7)
    assert set(good) - set(ranked([*honest, *strongest], ages, seats=2))


def test_an_honest_ranking_goes_by_rising_loss_and_leaves_out_what_has_none() -> None:
    losses = np.array([[0.3, INF, 0.1, 0.3], [INF, INF, INF, INF], [1, 2, 3, 4]])
    assert honest_ballots(losses, ranks=4) == [(2, 0, 3), (), (0, 1, 2, 3)]
    assert honest_ballots(losses, ranks=2) == [(2, 0), (), (0, 1)]


def test_worst_voters_rank_by_falling_loss() -> None:
    assert worst(np.array([[0.3, INF, 0.1, 0.2]]), ranks=4) == [(1, 0, 3, 2)]


def test_random_voters_rank_their_best_last_and_the_others_in_every_order() -> None:
    losses = np.tile([0.5, 0.1, 0.9], (200, 1))
    ballots = random(losses, default_rng(0), ranks=3)
    assert set(ballots) == {(0, 2, 1), (2, 0, 1)}
    assert 60 < ballots.count((0, 2, 1)) < 140


# Collusion.


def elections(count: int, candidates: int, voters: int) -> Iterator[tuple[list[Ballot], list[int], int]]:
    """Random small elections: ballots, ages, seats."""
    rng = default_rng(count * candidates)
    for _ in range(count):
        lengths = rng.integers(0, candidates + 1, size=rng.integers(1, voters + 1))
        ballots = [tuple(rng.permutation(candidates)[:length].tolist()) for length in lengths]
        yield ballots, rng.integers(0, 3, size=candidates).tolist(), int(rng.integers(1, candidates))


def reachable(
    ballots: Sequence[Ballot], ages: Sequence[int], seats: int, colluders: int
) -> set[frozenset[Position]]:
    """Everyone who can be removed together, over every way in which colluders can fill in their ballots."""
    choices: list[Ballot] = [()]
    for length in range(1, len(ages) + 1):
        choices += list(permutations(range(len(ages)), length))
    return {
        frozenset(by_hand([*ballots, *forged], ages, seats))
        for forged in combinations_with_replacement(choices, colluders)
    }


@pytest.mark.parametrize(
    ("candidates", "colluders", "count"), [(3, 1, 40), (3, 2, 40), (3, 3, 15), (4, 1, 25), (4, 2, 4)]
)
def test_the_search_finds_exactly_what_colluders_can_do_in_small_elections(
    candidates: int, colluders: int, count: int
) -> None:
    for ballots, ages, seats in elections(count, candidates, voters=6):
        possible = reachable(ballots, ages, seats, colluders)
        elimination = Elimination(ballots, ages, seats)
        for size in range(1, candidates - seats + 1):
            victims = set(range(size))
            walk = elimination.cheapest(victims, colluders)
            assert (walk is not None) == any(victims <= gone for gone in possible)
            if walk is not None:
                forged = elimination.ballots(walk, colluders)
                assert len(forged) == colluders
                assert victims <= set(by_hand([*ballots, *forged], ages, seats))


@pytest.mark.parametrize("candidates", [3, 4])
def test_coordinated_voters_remove_as_many_of_the_best_as_anyone_could(candidates: int) -> None:
    losses = np.tile(np.arange(candidates) / 10, (2, 1))  # the lower the number, the better the model
    for ballots, ages, seats in elections(12, candidates, voters=5):
        forged = coordinated(np.zeros((2, candidates)), losses, ballots, ages, seats, ranks=candidates)

        def harm(gone: frozenset[Position] | set[Position]) -> int:
            return next(best for best in range(candidates) if best not in gone)

        most = max(harm(gone) for gone in reachable(ballots, ages, seats, colluders=2))
        assert harm(set(by_hand([*ballots, *forged], ages, seats))) == most


@pytest.mark.parametrize("candidates", [3, 4])
def test_told_to_aim_at_the_best_single_choices_remove_as_many_as_anyone_could(candidates: int) -> None:
    losses = np.tile(np.arange(candidates) / 10, (2, 1))
    choices: list[Ballot] = [(), *((position,) for position in range(candidates))]
    for ballots, ages, seats in elections(60, candidates, voters=5):
        single = [ballot[:1] for ballot in ballots]
        forged = coordinated(np.zeros((2, candidates)), losses, single, ages, seats, aim="best")
        plans = [forged, *combinations_with_replacement(choices, 2)]
        gone = [plurality([*single, *votes], ages, seats) for votes in plans]
        harm = [next(best for best in range(candidates) if best not in others) for others in gone]
        assert harm[0] == max(harm)


@pytest.mark.parametrize("candidates", [3, 4])
def test_told_to_aim_at_the_favourite_rankings_remove_it_whenever_anyone_could(candidates: int) -> None:
    losses = np.tile(np.arange(candidates) / 10, (2, 1))
    for ballots, ages, seats in elections(12, candidates, voters=5):
        forged = coordinated(
            np.zeros((2, candidates)), losses, ballots, ages, seats, ranks=candidates, aim="favourite"
        )
        tally = first_choices(ballots, candidates)
        favourite = tally.index(max(tally))
        could = any(favourite in gone for gone in reachable(ballots, ages, seats, colluders=2))
        assert (favourite in by_hand([*ballots, *forged], ages, seats)) == could


def test_an_unknown_aim_is_named_with_those_that_there_are() -> None:
    with pytest.raises(LidflError, match="unknown aim 'worst'; choose from auto, favourite, best"):
        coordinated(np.zeros((1, 2)), np.zeros((1, 2)), [(0,)], [0, 0], 1, aim="worst")


@pytest.fixture
def gives_up(monkeypatch: pytest.MonkeyPatch) -> list[Walk | None]:
    """A search that looks at nothing; what the straight walk that is left finds."""
    found: list[Walk | None] = []
    straight = Elimination._straight

    def noted(self: Elimination, victims: Collection[Position], budget: float) -> Walk | None:
        found.append(straight(self, victims, budget))
        return found[-1]

    monkeypatch.setattr(Elimination, "_straight", noted)
    monkeypatch.setattr("lidfl.adversaries.collusion.SEARCHED", 0)
    return found


def test_a_search_that_gives_up_still_returns_ballots_that_work(gives_up: list[Walk | None]) -> None:
    rng = default_rng(5)
    honest: list[Ballot] = [tuple(rng.permutation(12).tolist()) for _ in range(14)]
    elimination = Elimination(honest, [0] * 12, seats=2)
    walk = elimination.cheapest([0, 1, 2])
    assert walk is not None
    assert gives_up == [walk], "it gave up, and walked straight on"
    gone = by_hand([*honest, *elimination.ballots(walk, walk.cost)], [0] * 12, seats=2)
    assert tuple(gone) == walk.order
    assert {0, 1, 2} <= set(gone)
    assert elimination.cheapest([0, 1, 2], budget=walk.cost) == walk
    assert elimination.cheapest([0, 1, 2], budget=walk.cost - 1) is None


def test_a_straight_walk_takes_the_cheapest_step_that_leaves_room_for_its_victims(
    gives_up: list[Walk | None],
) -> None:
    # 2 has no vote and goes for nothing; then 0 must, and with one more ballot 1 is level with it and younger.
    walk = Elimination([(0,), (0,), (1,)], [0, 0, 0], seats=1).cheapest([0])
    assert walk is not None
    assert (walk.order, walk.cost) == ((2, 0), 1)
    # With two seats only one goes: the victim at once, lifted over by the two others at 2 + 1.
    walk = Elimination([(0,), (0,), (1,)], [0, 0, 0], seats=2).cheapest([0])
    assert walk is not None
    assert (walk.order, walk.cost) == ((0,), 1 + 2)


def test_a_search_that_gives_up_pays_no_less_than_one_that_does_not_and_sometimes_more() -> None:
    pairs = []
    for ballots, ages, seats in elections(60, 5, voters=6):
        elimination = Elimination(ballots, ages, seats)
        searched, straight = elimination.cheapest([0]), elimination._straight([0], np.inf)
        assert searched is not None
        assert straight is not None
        pairs.append((searched.cost, straight.cost))
    assert all(searched <= straight for searched, straight in pairs)
    assert any(searched < straight for searched, straight in pairs)


# The margin.


@pytest.mark.parametrize(
    ("victim", "tally", "ages", "seats", "cost"),
    [
        (0, [5, 3, 1], [0, 0, 0], 1, 2),  # younger positions win ties, so 1 needs two votes to be level
        (0, [5, 3, 1], [0, 0, 0], 2, 6),
        (2, [5, 3, 1], [0, 0, 0], 2, 0),
        (1, [4, 4], [0, 0], 1, 1),  # level, and it would outlive the other
    ],
)
def test_lifting_others_over_a_candidate_costs_what_they_lack(
    victim: Position, tally: list[int], ages: list[int], seats: int, cost: int
) -> None:
    assert lift_cost(victim, tally, ages, seats) == cost


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_margin_is_the_least_number_of_ballots_that_removes(ranks: int) -> None:
    for ballots, ages, seats in elections(40, 3, voters=5):
        cut = [ballot[:ranks] for ballot in ballots]
        cost = removal_cost(0, cut, ages, seats, ranks)
        elect = plurality if ranks == 1 else ranked
        choices: list[Ballot] = [choice for n in range(1, ranks + 1) for choice in permutations(range(3), n)]
        for colluders in range(min(cost, 3) + 1):
            removed = any(
                0 in elect([*cut, *forged], ages, seats)
                for forged in combinations_with_replacement(choices, colluders)
            )
            assert removed == (colluders >= cost)


def test_the_margin_is_that_of_the_model_which_honest_voters_would_elect_alone() -> None:
    honest: list[Ballot] = [(0,), (0,), (0,), (1,)]
    # Model 0 has 3 votes; of two seats it holds one until both others have 4, or 3 as it is the oldest.
    assert margin(honest, [(2,), (2,)], [1, 0, 0], seats=2, ranks=1) == 2 + 1
    assert margin(honest, [(2,)] * 3 + [(1,)] * 2, [1, 0, 0], seats=2, ranks=1) == 0
    assert margin([(), ()], [(2,)], [1, 0, 0], seats=2, ranks=1) is None
    assert margin(honest, [], [1, 0], seats=2, ranks=1) is None


def test_the_margin_counts_who_does_not_abstain() -> None:
    assert margin([(0,), ()], [], [0, 0, 0], seats=2, ranks=1) == 1 + 1  # both others level with it, and younger


def test_with_two_ranks_the_favourite_is_whom_transfers_elect() -> None:
    # First choices are 3-2-2; 1 goes, its votes move to 2, and 2 wins. One more ballot for 1, and 2 goes instead.
    honest: list[Ballot] = [(0,), (0,), (0,), (1, 2), (1, 2), (2, 1), (2, 1)]
    assert margin(honest, [], [0, 0, 0], seats=1, ranks=2) == 1
