"""Quotas, failures of votes and sizes, against pencil and paper, exact arithmetic and brute force."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lidfl.methods.elections import plurality
from lidfl.theory import votes
from lidfl.theory.votes import Electorate
from tests.theory.by_hand import PAPER, binomial_tail, brute_force, electorates

# The quota


@pytest.mark.parametrize(("honest", "size", "quota", "margin"), [(21, 1, 18, 3), (14, 2, 12, 2), (7, 5, 6, 1)])
def test_the_papers_three_settings_by_hand(honest: int, size: int, quota: int, margin: int) -> None:
    electorate = Electorate.smallest(35, honest)
    assert (electorate.list_size, electorate.quota(), electorate.margin) == (size, quota, margin)


@given(electorates(most=200))
def test_with_the_shortest_list_the_quota_holds_and_with_a_shorter_one_it_does_not(electorate: Electorate) -> None:
    m, k, q = electorate.num_clients, electorate.num_honest, electorate.list_size
    assert electorate.margin >= 0
    assert q == 1 or Electorate(m, k, q - 1).margin < 0


@given(electorates(most=30))
def test_a_model_with_a_quota_of_votes_stays_and_with_one_vote_less_it_can_go(electorate: Electorate) -> None:
    """The others do their worst: they spread over the other candidates; the tie goes against the model."""
    q, m = electorate.list_size, electorate.num_clients
    for backing, stays in ((electorate.quota(), True), (electorate.quota() - 1, False)):
        others = [(1 + voter % q,) for voter in range(m - backing)]
        gone = plurality([(0,)] * backing + others, ages=[1] + [0] * q, seats=q)
        assert (gone != [0]) == stays


# A vote


@given(electorates(), st.floats(0.01, 1))
def test_the_failure_of_a_vote_is_the_binomial_tail(electorate: Electorate, accuracy: float) -> None:
    tail = binomial_tail(electorate.quota() - 1, electorate.num_honest, accuracy)
    assert votes.vote_failure(electorate, accuracy) == pytest.approx(float(tail), rel=1e-9, abs=1e-300)


@given(electorates(most=25), st.floats(0.3, 1), st.data())
def test_the_failure_of_a_committees_vote_is_counted_over_all_committees(
    electorate: Electorate, accuracy: float, data: st.DataObject
) -> None:
    voters = data.draw(st.integers(1, electorate.num_clients))
    m, k, wanted = electorate.num_clients, electorate.num_honest, electorate.quota(voters)
    by_hand = sum(
        Fraction(math.comb(k, h) * math.comb(m - k, voters - h), math.comb(m, voters))
        * binomial_tail(wanted - 1, h, accuracy)
        for h in range(min(k, voters) + 1)
    )
    assert votes.vote_failure(electorate, accuracy, voters) == pytest.approx(float(by_hand), rel=1e-9)


@given(electorates(most=400), st.floats(0.5, 1))
def test_hoeffdings_bound_holds(electorate: Electorate, accuracy: float) -> None:
    assert votes.vote_failure(electorate, accuracy) <= votes.hoeffding(electorate, accuracy) * (1 + 1e-9)


def test_the_papers_bound_without_the_square_does_not_hold() -> None:
    """By hand: a = 0.97³ − 1000/(3 · 400) = 0.0793, so exp(−2ak) = exp(−63.5) and exp(−2a²k) = exp(−5.04)."""
    electorate = Electorate.smallest(1000, 400)
    accuracy = electorate.ballot_accuracy(0.97)
    assert electorate.advantage(accuracy) == pytest.approx(0.079340, abs=1e-6)
    assert math.log(votes.paper_hoeffding(electorate, accuracy)) == pytest.approx(-63.47, abs=0.01)
    assert math.log(votes.hoeffding(electorate, accuracy)) == pytest.approx(-5.036, abs=0.001)
    assert votes.paper_hoeffding(electorate, accuracy) < votes.vote_failure(electorate, accuracy) / 1e15
    paper, enough = (
        needed(electorate, accuracy, 1e-6) for needed in (votes.paper_clients_needed, votes.clients_needed)
    )
    assert paper is not None
    assert enough is not None
    short = Electorate(paper, votes.honest_count(paper, Fraction("0.4")), 2)
    assert votes.vote_failure(short, accuracy) > 1e-6
    assert votes.vote_failure(Electorate(enough, -(-enough * 2 // 5), 2), accuracy) < 1e-6


def test_with_p_at_its_least_the_advantage_is_zero() -> None:
    for candidates in (1, 4):
        p = votes.smallest_p(PAPER, candidates)
        assert PAPER.advantage(PAPER.ballot_accuracy(p, candidates)) == pytest.approx(0, abs=1e-12)


def test_failures_over_rounds_and_per_round_are_inverse_and_exact_where_tiny() -> None:
    assert votes.over_rounds(votes.per_round(1e-6, 1500), 1500) == pytest.approx(1e-6, rel=1e-12)
    assert votes.over_rounds(1e-18, 1000) == pytest.approx(1e-15, rel=1e-12)
    assert votes.over_rounds(1.0, 3) == 1


# Sizes


@pytest.mark.parametrize("p", [0.97, 0.99, 0.999])
def test_the_smallest_federation_is_what_looking_at_every_size_finds(p: float) -> None:
    accuracy = PAPER.ballot_accuracy(p)
    found = votes.exact_clients_needed(PAPER, accuracy, 1e-4)
    limit = votes.clients_needed(PAPER, accuracy, 1e-4)
    assert found is not None
    assert limit is not None
    fails = [True]
    for clients in range(1, limit + 1):
        honest = votes.honest_count(clients, Fraction(2, 5))
        fails.append(votes.vote_failure(Electorate(clients, honest, 2), accuracy) > 1e-4)
    assert found == brute_force(fails)


def test_a_validation_set_of_the_corrected_size_is_accurate_and_the_papers_formula_halves_the_chance() -> None:
    """Hoeffding backwards: two sides at η/2 cost 2·exp(−n'η²/(2H²)), which must be (1 − p)/2."""
    size = votes.validation_size(0.1, 0.99, loss_range=2)
    paper = votes.paper_validation_size(0.1, 0.99, loss_range=2)
    assert size == math.ceil(800 * math.log(400))
    assert paper == math.ceil(800 * math.log(200))
    assert 2 * math.exp(-size * 0.01 / 8) <= 0.005 < 2 * math.exp(-(size - 1) * 0.01 / 8)
    assert 2 * math.exp(-paper * 0.01 / 8) == pytest.approx(0.01, rel=0.01)
    assert votes.validation_size(0.1, 1.0) is None


def test_held_out_images_bound_the_error_and_the_error_asks_for_these_images() -> None:
    """Hoeffding: 2·exp(−2n'η²/H²) must be 1 − p; and by trial, a coin of losses 0 and H is off by η less often."""
    size = votes.held_out_size(0.1, 0.99, loss_range=2)
    assert size == math.ceil(200 * math.log(200))
    assert 2 * math.exp(-2 * size * 0.01 / 4) <= 0.01 < 2 * math.exp(-2 * (size - 1) * 0.01 / 4)
    assert votes.held_out_error(size, 0.99, loss_range=2) == pytest.approx(0.1, rel=1e-3)
    assert votes.held_out_size(0.1, 1.0) is votes.held_out_error(9, 1.0) is None
    error = votes.held_out_error(50, 0.9)
    assert error is not None
    means = np.random.default_rng(0).binomial(50, 0.5, 20_000) / 50
    assert np.mean(np.abs(means - 0.5) > error) <= 0.1


@pytest.mark.parametrize(("clients", "honest", "size"), [(6, 2, 3), (35, 14, 2), (35, 14, 5), (7, 7, 1), (9, 2, 3)])
def test_so_many_sybils_may_join_and_not_one_more(clients: int, honest: int, size: int) -> None:
    """Counted one by one: the quota of the enlarged roll is still within the honest clients' reach."""
    electorate = Electorate(clients, honest, size)
    borne = -1
    while (clients + borne + 1) // (size + 1) + 1 <= honest:
        borne += 1
    assert max(electorate.room, -1) == borne
    for sybils in range(2 * clients):
        assert (electorate.joined_by(sybils).margin >= 0) == (sybils <= electorate.room)
