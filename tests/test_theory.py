"""The theory's numbers, against pencil and paper, brute force, simulation and the protocol itself."""

import json
import math
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng
from scipy.stats import binomtest

from lidfl import theory
from lidfl.config import Experiment
from lidfl.elections import plurality, ranked
from lidfl.errors import LidflError
from lidfl.planning import Question, as_dict, plan
from lidfl.protocol import ModelList, Rules
from lidfl.protocol.rounds import offer
from lidfl.theory import Federation, ParentRule, Problem, Size
from tests.command import lidfl

PAPER = Federation.smallest(35, 14)


def binomial_tail(most: int, trials: int, chance: float) -> Fraction:
    """Pr{Bin ≤ most}, term by term in exact arithmetic."""
    p = Fraction(chance)
    return sum(
        (math.comb(trials, x) * p**x * (1 - p) ** (trials - x) for x in range(min(most, trials) + 1)), Fraction(0)
    )


def hypergeometric_tail(most: int, federation: Federation, drawn: int) -> Fraction:
    """Pr{honest members ≤ most}, by counting committees."""
    m, k = federation.num_clients, federation.num_honest
    ways = sum(math.comb(k, x) * math.comb(m - k, drawn - x) for x in range(min(most, drawn) + 1))
    return Fraction(ways, math.comb(m, drawn))


@st.composite
def federations(draw: st.DrawFn, most: int = 60) -> Federation:
    """Any federation with the shortest safe list; half of them only just above the quota."""
    clients = draw(st.integers(1, most))
    honest = draw(st.integers(1, clients))
    if draw(st.booleans()):
        honest = min(clients, clients // (draw(st.integers(1, 8)) + 1) + 1)
    return Federation.smallest(clients, honest)


# The quota


@pytest.mark.parametrize(("honest", "size", "quota", "margin"), [(21, 1, 18, 3), (14, 2, 12, 2), (7, 5, 6, 1)])
def test_the_papers_three_settings_by_hand(honest: int, size: int, quota: int, margin: int) -> None:
    federation = Federation.smallest(35, honest)
    assert (federation.list_size, federation.quota(), federation.margin) == (size, quota, margin)


@given(federations(most=200))
def test_with_the_shortest_list_the_quota_holds_and_with_a_shorter_one_it_does_not(federation: Federation) -> None:
    m, k, q = federation.num_clients, federation.num_honest, federation.list_size
    assert federation.margin >= 0
    assert q == 1 or Federation(m, k, q - 1).margin < 0


@given(federations(most=30))
def test_a_model_with_a_quota_of_votes_stays_and_with_one_vote_less_it_can_go(federation: Federation) -> None:
    """The others do their worst: they spread over the other candidates; the tie goes against the model."""
    q, m = federation.list_size, federation.num_clients
    for votes, stays in ((federation.quota(), True), (federation.quota() - 1, False)):
        others = [(1 + voter % q,) for voter in range(m - votes)]
        gone = plurality([(0,)] * votes + others, ages=[1] + [0] * q, seats=q)
        assert (gone != [0]) == stays


def test_plan_counts_clients_as_an_experiment_does() -> None:
    for clients in (10, 20, 35, 101):
        for fraction in ("0.1", "0.3", "0.6", "0.8", "0.95"):
            experiment = Experiment(num_clients=clients, byzantine_fraction=float(fraction))
            federation = Question(clients=clients, honest_fraction=float(1 - Fraction(fraction))).federation
            assert (federation.num_honest, federation.list_size) == (experiment.num_honest, experiment.list_size)


# A vote


@given(federations(), st.floats(0.01, 1))
def test_the_failure_of_a_vote_is_the_binomial_tail(federation: Federation, accuracy: float) -> None:
    tail = binomial_tail(federation.quota() - 1, federation.num_honest, accuracy)
    assert theory.vote_failure(federation, accuracy) == pytest.approx(float(tail), rel=1e-9, abs=1e-300)


@given(federations(most=25), st.floats(0.3, 1), st.data())
def test_the_failure_of_a_committees_vote_is_counted_over_all_committees(
    federation: Federation, accuracy: float, data: st.DataObject
) -> None:
    voters = data.draw(st.integers(1, federation.num_clients))
    m, k, wanted = federation.num_clients, federation.num_honest, federation.quota(voters)
    by_hand = sum(
        Fraction(math.comb(k, h) * math.comb(m - k, voters - h), math.comb(m, voters))
        * binomial_tail(wanted - 1, h, accuracy)
        for h in range(min(k, voters) + 1)
    )
    assert theory.vote_failure(federation, accuracy, voters) == pytest.approx(float(by_hand), rel=1e-9)


@given(federations(most=400), st.floats(0.5, 1))
def test_hoeffdings_bound_holds(federation: Federation, accuracy: float) -> None:
    assert theory.vote_failure(federation, accuracy) <= theory.hoeffding(federation, accuracy) * (1 + 1e-9)


def test_the_papers_bound_without_the_square_does_not_hold() -> None:
    """By hand: a = 0.97³ − 1000/(3 · 400) = 0.0793, so exp(−2ak) = exp(−63.5) and exp(−2a²k) = exp(−5.04)."""
    federation = Federation.smallest(1000, 400)
    accuracy = federation.ballot_accuracy(0.97)
    assert federation.advantage(accuracy) == pytest.approx(0.079340, abs=1e-6)
    assert math.log(theory.paper_hoeffding(federation, accuracy)) == pytest.approx(-63.47, abs=0.01)
    assert math.log(theory.hoeffding(federation, accuracy)) == pytest.approx(-5.036, abs=0.001)
    assert theory.paper_hoeffding(federation, accuracy) < theory.vote_failure(federation, accuracy) / 1e15
    paper, enough = (
        needed(federation, accuracy, 1e-6) for needed in (theory.paper_clients_needed, theory.clients_needed)
    )
    assert paper is not None
    assert enough is not None
    short = Federation(paper, theory.honest_count(paper, Fraction("0.4")), 2)
    assert theory.vote_failure(short, accuracy) > 1e-6
    assert theory.vote_failure(Federation(enough, -(-enough * 2 // 5), 2), accuracy) < 1e-6


def test_with_p_at_its_least_the_advantage_is_zero() -> None:
    for candidates in (1, 4):
        p = theory.smallest_p(PAPER, candidates)
        assert PAPER.advantage(PAPER.ballot_accuracy(p, candidates)) == pytest.approx(0, abs=1e-12)


def test_failures_over_rounds_and_per_round_are_inverse_and_exact_where_tiny() -> None:
    assert theory.over_rounds(theory.per_round(1e-6, 1500), 1500) == pytest.approx(1e-6, rel=1e-12)
    assert theory.over_rounds(1e-18, 1000) == pytest.approx(1e-15, rel=1e-12)
    assert theory.over_rounds(1.0, 3) == 1


# Sizes


def brute_force(fails: list[bool]) -> Size:
    """The smallest size that does not fail, and that from which on none does."""
    return Size(fails.index(False), max(size for size, bad in enumerate(fails) if bad) + 1)


@settings(max_examples=60, deadline=None)
@given(federations(most=90), st.floats(-9, 0.13))
def test_committees_are_as_small_as_looking_at_every_size_finds(federation: Federation, exponent: float) -> None:
    delta = 10**exponent / math.e  # never equal to a ratio of whole numbers
    sizes = range(federation.num_clients + 1)
    fails = [hypergeometric_tail(federation.quota(v) - 1, federation, v) > delta for v in sizes]
    assert theory.committee_size(federation, delta) == brute_force(fails)


@pytest.mark.parametrize("honest", [101, 104, 115])
def test_committees_in_a_federation_just_above_the_quota_match_brute_force(honest: int) -> None:
    """Here the chance of failure first rises towards one half, and hundreds of blocks must be searched."""
    federation = Federation(300, honest, 2)
    for delta in (0.5, 0.45, 0.3, 1e-3):
        fails = [hypergeometric_tail(federation.quota(v) - 1, federation, v) > delta for v in range(301)]
        assert theory.committee_size(federation, delta) == brute_force(fails)


@pytest.mark.parametrize("share", [0.4, 0.2])
def test_a_million_clients_need_a_committee_of_thousands(share: float) -> None:
    federation = Federation.smallest(1_000_000, round(share * 1_000_000))
    size = theory.committee_size(federation, 1e-6)
    assert size is not None
    hoeffding = math.log(1e6) / (2 * (share - 1 / (federation.list_size + 1)) ** 2)
    assert size.smallest <= size.onwards < hoeffding < 7000
    for voters, safe in ((size.smallest, True), (size.smallest - 1, False), (size.onwards - 1, False)):
        assert (theory.committee_failure(federation, voters) <= 1e-6) == safe


def test_one_honest_client_in_a_million_must_be_in_the_committee() -> None:
    assert theory.committee_size(Federation.smallest(1_000_000, 1), 2.5e-6) == Size(999_998, 999_998)


def test_without_a_quota_no_committee_is_safe() -> None:
    assert theory.committee_size(Federation(35, 14, 1), 0.5) is None


@pytest.mark.parametrize("p", [0.97, 0.99, 0.999])
def test_the_smallest_federation_is_what_looking_at_every_size_finds(p: float) -> None:
    accuracy = PAPER.ballot_accuracy(p)
    found = theory.exact_clients_needed(PAPER, accuracy, 1e-4)
    limit = theory.clients_needed(PAPER, accuracy, 1e-4)
    assert found is not None
    assert limit is not None
    fails = [True]
    for clients in range(1, limit + 1):
        honest = theory.honest_count(clients, Fraction(2, 5))
        fails.append(theory.vote_failure(Federation(clients, honest, 2), accuracy) > 1e-4)
    assert found == brute_force(fails)


def test_a_validation_set_of_the_corrected_size_is_accurate_and_the_papers_formula_halves_the_chance() -> None:
    """Hoeffding backwards: two sides at η/2 cost 2·exp(−n'η²/(2H²)), which must be (1 − p)/2."""
    size = theory.validation_size(0.1, 0.99, loss_range=2)
    paper = theory.paper_validation_size(0.1, 0.99, loss_range=2)
    assert size == math.ceil(800 * math.log(400))
    assert paper == math.ceil(800 * math.log(200))
    assert 2 * math.exp(-size * 0.01 / 8) <= 0.005 < 2 * math.exp(-(size - 1) * 0.01 / 8)
    assert 2 * math.exp(-paper * 0.01 / 8) == pytest.approx(0.01, rel=0.01)
    assert theory.validation_size(0.1, 1.0) is None


# Convergence


@pytest.mark.parametrize("candidates", [1, 3, 8])
def test_uniform_parents_make_good_rounds_as_often_as_the_protocol_does(candidates: int) -> None:
    models = ModelList.initial(torch.zeros(1), 2)
    rules = Rules(elect=ranked, candidates=candidates, workers=candidates)
    rng, rounds, good = default_rng(5), 3000, 0
    for _ in range(rounds):
        offers = offer(models, range(35), rng, rules)
        good += any(client < 14 and parents == (1,) for client, parents in offers.items())
    chance = theory.good_round(PAPER, "uniform", candidates, p=0.9)
    assert binomtest(good, rounds, chance).pvalue > 1e-4


@pytest.mark.parametrize("candidates", [1, 2, 4])
def test_good_rounds_by_listing_all_samples(candidates: int) -> None:
    federation = Federation.smallest(9, 4)
    samples = list(combinations(range(9), candidates))
    rights: dict[ParentRule, float] = {"uniform": 1 / 2, "favourite": 0.9**2}
    for rule, right in rights.items():
        bad = np.mean([(1 - right) ** sum(client < 4 for client in sample) for sample in samples])
        assert theory.good_round(federation, rule, candidates, p=0.9) == pytest.approx(1 - bad)
    honest = np.mean([any(client < 4 for client in sample) for sample in samples])
    assert theory.good_round(federation, "favourite", candidates, p=1) == pytest.approx(honest)


def test_one_candidate_and_uniform_parents_give_the_corrected_theorem() -> None:
    """ε = q(4ηβ + σ²)/(2αγ(1 − δ)) and the rate 1 − αγ(1 − δ)/(βq); by hand 0.0285/0.152 and 1 − 0.038."""
    problem = Problem(alpha=0.4, beta=2.0, sigma=0.1, gap=3.0)
    bound = theory.convergence(PAPER, problem, rule="uniform", eta=0.001, p=0.9, failure=0.05)
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
    bound = theory.convergence(PAPER, problem, rule="uniform", eta=0.01, p=0.9, failure=0.2)
    assert theory.paper_bound(PAPER, problem, 0.01, 10**6, failure=0.2) == pytest.approx(bound.floor * 0.8**2)


@pytest.mark.parametrize("rule", ["uniform", "favourite"])
def test_where_every_vote_fails_nothing_is_promised(rule: ParentRule) -> None:
    problem = Problem(alpha=0.5, beta=1.0, sigma=0.0)
    bound = theory.convergence(PAPER, problem, rule=rule, eta=0.01, p=0.9, failure=1.0)
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
    federation = data.draw(federations(most=15))
    m, k, q = federation.num_clients, federation.num_honest, federation.list_size
    new = data.draw(st.integers(1, 4))
    losses = np.array(data.draw(st.lists(st.integers(0, 12), min_size=q + new, max_size=q + new)), dtype=float)
    errors = data.draw(
        st.lists(st.lists(st.floats(-1, 1), min_size=q + new, max_size=q + new), min_size=k, max_size=k)
    )
    honest = [tuple((losses + error).argsort(kind="stable").tolist()) for error in np.array(errors)]
    byzantine = data.draw(st.lists(st.permutations(range(q + new)), min_size=m - k, max_size=m - k))
    gone = ranked([*honest, *map(tuple, byzantine)], ages=[0] * (q + new), seats=q)
    assert np.delete(losses, gone).min() <= losses.min() + 2 * new


# The command


@given(
    clients=st.integers(1, 60),
    share=st.floats(0.01, 1),
    p=st.floats(0.5, 1),
    candidates=st.integers(1, 3),
    voters=st.integers(0, 5),
    delta=st.floats(1e-12, 0.5),
    size=st.none() | st.integers(1, 4),
)
@settings(max_examples=50, deadline=None)
def test_every_plan_can_be_written_as_json(
    clients: int, share: float, p: float, candidates: int, voters: int, delta: float, size: int | None
) -> None:
    question = Question(
        clients=clients,
        honest_fraction=share,
        p=p,
        candidates=min(candidates, clients),
        voters=min(voters, clients),
        delta=delta,
        list_size=size,
    )
    made = json.loads(json.dumps(as_dict(plan(question)), allow_nan=False))
    assert all(figure["sentence"].endswith(".") for figure in made["figures"].values())
    for key, figure in made["figures"].items():
        if "failure" in key or "good" in key:
            assert 0 <= figure["value"] <= 1
    rounds = [point["round"] for point in made["curve"]]
    assert rounds == sorted(set(rounds))
    assert {0, 1, 10, 100, 1500} <= set(rounds)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(clients=35), "give either --honest, such as 14, or --honest-fraction"),
        (dict(honest=3), "--clients is missing"),
        (dict(clients=35, honest=36), "--honest must be at least 1 and at most 35, not 36"),
        (dict(clients=35, honest=14, p=0.0), "--p must be above 0 and at most 1"),
        (dict(clients=35, honest=14, alpha=2.0), "--beta must be at least 2"),
        (dict(clients=35, honest=14, delta=0.6), "--delta must be above 0 and at most 0.5"),
        (dict(clients=35, honest=14, list_size=0), "--list-size must be at least 1"),
        (dict(clients=35, honest=14, eta=math.nan), "--eta must be above 0"),
        (dict(clients=35, honest=14, voters=36), "--voters must be at least 0 and at most 35"),
    ],
)
def test_a_question_without_sense_is_refused_in_one_line(settings: dict[str, float], message: str) -> None:
    with pytest.raises(LidflError, match=message.replace("(", r"\(")):
        Question(**settings)  # type: ignore[arg-type]


def test_a_chance_too_small_for_a_float_is_not_called_zero() -> None:
    made = plan(Question(clients=1_000_000, honest=400_000))
    (failure,) = (figure for section in made.sections for figure in section.figures if figure.key == "vote_failure")
    assert failure.text == "< 1e-300"


def test_plan_speaks_to_people_and_to_programs(tmp_path: Path) -> None:
    text, _ = lidfl("plan", "--clients", 35, "--honest", 14, cwd=tmp_path)
    for words in ("a list of 2 models", "The quota holds", "Hoeffding", "--eta (default)", "E[f − f*]"):
        assert words in text
    written, _ = lidfl("plan", "--clients", 35, "--honest-fraction", 0.2, "--json", cwd=tmp_path)
    figures = json.loads(written)["figures"]
    assert (figures["list_size"]["value"], figures["margin"]["value"]) == (5, 1)
    _, error = lidfl("plan", "--clients", 35, cwd=tmp_path, expect=2)
    assert error.startswith("lidfl: give either --honest")
