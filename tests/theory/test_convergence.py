"""Good rounds and bounds, against pencil and paper, listing all samples, simulation and the protocol itself."""

import math
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng
from scipy.stats import binomtest

from lidfl.methods.elections import plurality, ranked
from lidfl.methods.proposals import client
from lidfl.protocol import ModelList, Rules
from lidfl.protocol.rounds import offer
from lidfl.theory.convergence import ParentRule, Problem, corrected_bound, good_round, paper_bound
from lidfl.theory.votes import Electorate
from tests.theory.by_hand import PAPER, electorates


@pytest.mark.parametrize("candidates", [1, 3, 8])
def test_uniform_parents_make_good_rounds_as_often_as_the_protocol_does(candidates: int) -> None:
    models = ModelList.initial(torch.zeros(1), 2)
    rules = Rules(proposals=(client,), elect=ranked, candidates=candidates, workers=candidates)
    rng, rounds, good = default_rng(5), 3000, 0
    for _ in range(rounds):
        offers = offer(models, range(35), rng, rules)
        good += any(client < 14 and parents == (1,) for client, parents in offers.items())
    chance = good_round(PAPER, "uniform", candidates, p=0.9)
    assert binomtest(good, rounds, chance).pvalue > 1e-4


@pytest.mark.parametrize("candidates", [1, 2, 4])
def test_good_rounds_by_listing_all_samples(candidates: int) -> None:
    electorate = Electorate.smallest(9, 4)
    samples = list(combinations(range(9), candidates))
    rights: dict[ParentRule, float] = {"uniform": 1 / 2, "favourite": 0.9**2}
    for rule, right in rights.items():
        bad = np.mean([(1 - right) ** sum(client < 4 for client in sample) for sample in samples])
        assert good_round(electorate, rule, candidates, p=0.9) == pytest.approx(1 - bad)
    honest = np.mean([any(client < 4 for client in sample) for sample in samples])
    assert good_round(electorate, "favourite", candidates, p=1) == pytest.approx(honest)


def test_one_candidate_and_uniform_parents_give_the_corrected_theorem() -> None:
    """ε = q(4ηβ + σ²)/(2αγ(1 − δ)) and the rate 1 − αγ(1 − δ)/(βq); by hand 0.0285/0.152 and 1 − 0.038."""
    problem = Problem(alpha=0.4, beta=2.0, sigma=0.1, gap=3.0)
    bound = corrected_bound(PAPER, problem, rule="uniform", eta=0.001, p=0.9, failure=0.05)
    assert bound.rate == pytest.approx(1 - 0.4 * 0.4 * 0.95 / (2 * 2))
    assert bound.floor == pytest.approx(2 * (4 * 0.001 * 2 + 0.01) / (2 * 0.4 * 0.4 * 0.95))
    assert bound.bound(0) == 3
    step = 3.0
    for _ in range(7):
        step = bound.rate * step + bound.slack
    assert bound.bound(7) == pytest.approx(step)
    assert bound.bound(10**6) == pytest.approx(bound.floor)
    assert bound.rate**bound.half_life == pytest.approx(0.5)


def test_the_papers_floor_is_too_low_by_the_square_of_one_minus_delta() -> None:
    problem = Problem(alpha=0.5, beta=1.0, sigma=0.1)
    bound = corrected_bound(PAPER, problem, rule="uniform", eta=0.01, p=0.9, failure=0.2)
    assert paper_bound(PAPER, problem, 0.01, 10**6, failure=0.2) == pytest.approx(bound.floor * 0.8**2)


@pytest.mark.parametrize("rule", ["uniform", "favourite"])
def test_where_every_vote_fails_nothing_is_promised(rule: ParentRule) -> None:
    problem = Problem(alpha=0.5, beta=1.0, sigma=0.0)
    bound = corrected_bound(PAPER, problem, rule=rule, eta=0.01, p=0.9, failure=1.0)
    assert bound.floor == math.inf
    assert bound.bound(10) >= 1


def test_with_single_choices_and_several_new_models_all_good_ones_can_go() -> None:
    """The example of docs/theory.md: three good models share 14 of 35 votes; ranked, one of them stays."""
    honest = [(0, 1, 2)] * 5 + [(1, 2, 0)] * 5 + [(2, 0, 1)] * 4
    ballots = [*honest, *[(3,)] * 11, *[(4,)] * 10]
    assert set(plurality(ballots, ages=[0] * 5, seats=2)) == {0, 1, 2}
    assert not {0, 1, 2} <= set(ranked(ballots, ages=[0] * 5, seats=2))


def test_two_removals_can_cost_twice_two_eta_and_no_more() -> None:
    """Losses 0, 1.9, 3.8 and η = 1: accurate voters may swap neighbours, never first and last; yet the last wins.

    26 of 100 rank (1, 0, 2), 25 rank (0, 2, 1), and 49 Byzantine voters put 2 first.
    """
    ballots = [(1, 0, 2)] * 26 + [(0, 2, 1)] * 25 + [(2,)] * 49
    assert ranked(ballots, ages=[0, 0, 0], seats=1) == [0, 1]


@settings(max_examples=200)
@given(st.data())
def test_c_removals_cost_at_most_two_eta_each(data: st.DataObject) -> None:
    """Any losses, any errors within η, any Byzantine ballots: the best survivor is within 2ηc of the best."""
    electorate = data.draw(electorates(most=15))
    m, k, q = electorate.num_clients, electorate.num_honest, electorate.list_size
    new = data.draw(st.integers(1, 4))
    losses = np.array(data.draw(st.lists(st.integers(0, 12), min_size=q + new, max_size=q + new)), dtype=float)
    errors = data.draw(
        st.lists(st.lists(st.floats(-1, 1), min_size=q + new, max_size=q + new), min_size=k, max_size=k)
    )
    honest = [tuple((losses + error).argsort(kind="stable").tolist()) for error in np.array(errors)]
    byzantine = data.draw(st.lists(st.permutations(range(q + new)), min_size=m - k, max_size=m - k))
    gone = ranked([*honest, *map(tuple, byzantine)], ages=[0] * (q + new), seats=q)
    assert np.delete(losses, gone).min() <= losses.min() + 2 * new
