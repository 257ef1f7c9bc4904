"""Whoever is absent does not decide: last ballots stand, and what too few answer is not played."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng

from lidfl.methods.elections import election
from lidfl.methods.proposals import resolve_proposals
from lidfl.protocol import (
    ModelList,
    Outcome,
    Replies,
    Request,
    Rules,
    Train,
    Trained,
    Vote,
    lid_round,
    single_round,
)
from lidfl.runs.loop import drive
from lidfl.types import Ballot, Client

CLIENTS = range(6)
HONEST = (0, 1)
SEATS = 3
"""Two honest clients of six, and a list of three: more than a quota of 6/4."""


def rules(elect: str, voters: int | None = None) -> Rules:
    ranked = elect == "ranked"
    return Rules(resolve_proposals("client"), election.resolve(elect), ranked=ranked, voters=voters)


def play(
    models: ModelList, ballots: Mapping[Client, Ballot], elect: str, trained: bool = True, seed: int = 0
) -> Outcome:
    """A round in which one client trains and those who are there cast these ballots."""

    def answer(request: Request) -> Replies:
        if isinstance(request, Train):
            return [(c, Trained(offer[0], torch.ones(2))) for c, offer in request.offers.items() if trained]
        return list(ballots.items())

    return drive(lid_round(models, seed, CLIENTS, default_rng(seed), rules(elect)), answer)


def first_list() -> ModelList:
    return ModelList.initial(torch.zeros(2), SEATS)


def fully(ballots: Mapping[Client, Ballot], others: Ballot = ()) -> dict[Client, Ballot]:
    return {client: ballots.get(client, others) for client in CLIENTS}


@pytest.mark.parametrize("elect", list(election))
def test_a_ballot_stands_until_another_is_cast(elect: str) -> None:
    after = play(first_list(), fully({0: (1,), 1: (1,)}, (3,)), elect)
    assert after.models.standing[0] == (1,)
    again = play(after.models, dict.fromkeys(range(2, 6), ()), elect)
    assert (again.record.votes[1], again.record.stood) == (2, 2)
    changed = play(again.models, fully({0: (0,), 1: ()}), elect)
    assert changed.models.standing == {0: (changed.models.ids[0],)}


@pytest.mark.parametrize("elect", list(election))
def test_what_is_left_of_a_ballot_is_what_is_left_in_the_list(elect: str) -> None:
    models = first_list()
    ballots = fully({0: (1, 0, 3) if elect == "ranked" else (1,)}, (0,))
    after = play(models, ballots, elect).models
    gone = {0, 1, 2, 3} - set(after.ids)
    assert after.standing[0] == tuple(
        model for model in ((1, 0, 3) if elect == "ranked" else (1,)) if model not in gone
    )
    assert all(set(ballot) <= set(after.ids) for ballot in after.standing.values())


def every_ballot(candidates: int, elect: str) -> list[Ballot]:
    if elect == "plurality":
        return [(), *((place,) for place in range(candidates))]
    return [tuple(order) for order in permutations(range(candidates))]


def brute_force(elect: str) -> Iterable[Sequence[Ballot]]:
    """What four colluders may cast: everything, or for rankings, whatever two pairs of them may."""
    every = every_ballot(SEATS + 1, elect)
    if elect == "plurality":
        return product(every, repeat=4)
    return ((one, one, other, other) for one in every for other in every)


@pytest.mark.parametrize("elect", list(election))
def test_whatever_the_others_cast_what_absent_honest_voters_liked_stays(elect: str) -> None:
    """All honest voters are away, and the four others have the vote to themselves."""
    liked = play(first_list(), fully({0: (2,), 1: (2,)}, (3,)), elect).models
    for forged in brute_force(elect):
        after = play(liked, dict(zip(range(2, 6), forged, strict=True)), elect)
        assert after.played
        assert 2 in after.models.ids


@pytest.mark.parametrize("elect", list(election))
def test_without_standing_ballots_they_would_lose_it(elect: str) -> None:
    """So the test above can fail."""
    liked = play(first_list(), fully({0: (2,), 1: (2,)}, (3,)), elect).models
    forgotten = ModelList(liked.parameters, liked.ids, liked.parents, liked.ages, liked.next_id)
    lost = (
        2 not in play(forgotten, dict(zip(range(2, 6), forged, strict=True)), elect).models.ids
        for forged in brute_force(elect)
    )
    assert any(lost)


@given(
    data=st.data(),
    elect=st.sampled_from(sorted(election)),
    silent=st.sets(st.sampled_from(range(2, 6)), max_size=3),
)
def test_to_stay_away_is_to_cast_what_is_left_of_the_last_ballot(
    data: st.DataObject, elect: str, silent: set[Client]
) -> None:
    """So nobody gains by it what it could not have had by voting."""
    ranks = SEATS + 1 if elect == "ranked" else 1
    some = st.lists(st.sampled_from(range(SEATS + 1)), max_size=ranks, unique=True).map(tuple)
    before = play(first_list(), {client: data.draw(some) for client in CLIENTS}, elect).models
    ballots: dict[Client, Ballot] = {client: data.draw(some) for client in CLIENTS if client not in silent}
    left = {client: before.ballot_of(client) for client in silent}
    away, there = play(before, ballots, elect), play(before, ballots | left, elect)
    assert away.models.ids == there.models.ids
    assert away.models.standing == there.models.standing


@pytest.mark.parametrize("elect", list(election))
def test_a_vote_that_too_few_answer_is_not_held_and_the_round_not_played(elect: str) -> None:
    """With six voters and three seats fewer than two could keep nothing, even if they agreed."""
    models = first_list()
    for present, held in (([], False), ([4], False), ([4, 5], True), ([0, 1], True)):
        outcome = play(models, dict.fromkeys(present, (0,)), elect)
        assert outcome.played == held
        if not held:
            assert outcome.models is models
            assert outcome.record.born == ()


def test_byzantine_voters_cannot_keep_a_vote_from_being_held() -> None:
    """However many there are: the quorum is never more than the honest voters have to be."""
    for clients in range(1, 40):
        for honest in range(1, clients + 1):
            seats = clients // honest
            vote = Vote(0, ModelList.initial(torch.zeros(1), seats), tuple(range(clients)), seats)
            assert vote.quorum <= honest


def test_a_round_in_which_nobody_could_train_is_not_played() -> None:
    models = first_list()
    outcome = play(models, fully({}), "plurality", trained=False)
    assert (outcome.played, outcome.models) == (False, models)
    single = ModelList.initial(torch.zeros(2), 1)
    round_ = single_round(single, 0, CLIENTS, default_rng(0), rules("plurality"))
    assert not drive(round_, lambda request: []).played


def test_a_worker_that_sends_nonsense_has_answered() -> None:
    def answer(request: Request) -> Replies:
        assert isinstance(request, Train)
        return [(client, None) for client in request.offers]

    assert drive(lid_round(first_list(), 0, CLIENTS, default_rng(0), rules("plurality")), answer).played


def test_of_a_committee_the_members_ballots_stand_and_no_others() -> None:
    liked = play(first_list(), fully({0: (2,), 1: (2,)}, (3,)), "plurality").models
    asked: list[Vote] = []

    def answer(request: Request) -> Replies:
        if isinstance(request, Train):
            return [(c, Trained(offer[0], torch.ones(2))) for c, offer in request.offers.items()]
        assert isinstance(request, Vote)
        asked.append(request)
        return [(voter, ()) for voter in request.voters if voter not in HONEST]

    for seed in range(20):
        outcome = drive(lid_round(liked, 1, CLIENTS, default_rng(seed), rules("plurality", voters=4)), answer)
        members = [client for client in HONEST if client in asked[-1].voters]
        assert outcome.record.votes[2] == len(members)
