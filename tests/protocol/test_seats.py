"""The list follows how many clients there are: it grows and shrinks, and loses nothing that honest voters keep."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng

from lidfl.methods.elections import election
from lidfl.methods.proposals import resolve_proposals
from lidfl.protocol import ModelList, Outcome, Replies, Request, Rules, Train, Trained, lid_round
from lidfl.runs.loop import drive
from lidfl.types import Ballot, Client


def play(
    models: ModelList, seats: int | None, ballots: dict[Client, Ballot], elect: str
) -> tuple[Outcome, list[str]]:
    """A round for so many seats, in which these clients cast these ballots; what was asked for."""
    asked: list[str] = []

    def answer(request: Request) -> Replies:
        asked.append(type(request).__name__)
        if isinstance(request, Train):
            return [(client, Trained(offer[0], torch.ones(2))) for client, offer in request.offers.items()]
        return list(ballots.items())

    rules = Rules(resolve_proposals("client"), election.resolve(elect), ranked=elect == "ranked", seats=seats)
    return drive(lid_round(models, 0, sorted(ballots), default_rng(0), rules), answer), asked


def listed(size: int) -> ModelList:
    return ModelList.initial(torch.zeros(2), size)


@pytest.mark.parametrize("elect", list(election))
def test_a_list_with_free_seats_fills_up_and_none_goes_before_it_is_full(elect: str) -> None:
    models = listed(2)
    for expected in (3, 4, 4):
        outcome, asked = play(models, 4, dict.fromkeys(range(8), (0,)), elect)
        models = outcome.models
        assert (len(models), asked) == (expected, ["Train", "Vote"])
        assert bool(outcome.record.removed) == (len(outcome.record.votes) > 4)


@pytest.mark.parametrize("elect", list(election))
def test_a_list_that_is_too_long_loses_one_a_round_and_gains_none(elect: str) -> None:
    models = listed(5)
    for expected in (4, 3):
        outcome, asked = play(models, 3, dict.fromkeys(range(6), (0,)), elect)
        models = outcome.models
        assert (len(models), asked, outcome.record.born) == (expected, ["Vote"], ())
    outcome, asked = play(models, 3, dict.fromkeys(range(6), (0,)), elect)
    assert (len(outcome.models), asked) == (3, ["Train", "Vote"])


@pytest.mark.parametrize("elect", list(election))
@pytest.mark.parametrize(
    ("length", "seats", "clients", "honest"), [(3, 4, 9, 2), (5, 2, 5, 2), (3, 3, 7, 2), (2, 6, 12, 2)]
)
@given(data=st.data())
def test_what_an_honest_quota_likes_best_stays_whatever_the_others_cast(
    elect: str, length: int, seats: int, clients: int, honest: int, data: st.DataObject
) -> None:
    """k > v/(q + 1) for the seats of the vote: in a list that grows, in one that shrinks, and in one that stays."""
    assert honest * (seats + 1) > clients
    candidates = length if length > seats else length + 1
    favourite = data.draw(st.integers(0, candidates - 1))
    ranks = candidates if elect == "ranked" else 1
    ballot = st.permutations(range(candidates)).map(lambda order: tuple(order[:ranks]))
    others = {client: data.draw(ballot | st.just(())) for client in range(honest, clients)}
    outcome, _ = play(listed(length), seats, others | dict.fromkeys(range(honest), (favourite,)), elect)
    assert outcome.played
    assert favourite in outcome.models.ids


@pytest.mark.parametrize("elect", list(election))
def test_the_ballot_of_one_who_has_left_the_roll_does_not_count(elect: str) -> None:
    models = play(listed(3), 3, dict.fromkeys(range(6), (1,)), elect)[0].models
    assert set(models.standing) == set(range(6))
    outcome, _ = play(models, 3, dict.fromkeys(range(4), (0,)), elect)
    assert sum(outcome.record.votes.values()) == 4
    assert outcome.record.stood == 0


def test_without_a_number_of_seats_the_list_keeps_its_length() -> None:
    outcome, asked = play(listed(3), None, dict.fromkeys(range(6), (0,)), "plurality")
    assert (len(outcome.models), asked) == (3, ["Train", "Vote"])
