"""Committees, against brute force over all sizes and Hoeffding's bound."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lidfl.theory.committees import committee_failure, committee_size
from lidfl.theory.votes import Electorate, Size
from tests.theory.by_hand import brute_force, electorates, hypergeometric_tail


@settings(max_examples=60)
@given(electorates(most=90), st.floats(-9, 0.13))
def test_committees_are_as_small_as_looking_at_every_size_finds(electorate: Electorate, exponent: float) -> None:
    delta = 10**exponent / math.e  # never equal to a ratio of whole numbers
    sizes = range(electorate.num_clients + 1)
    fails = [hypergeometric_tail(electorate.quota(v) - 1, electorate, v) > delta for v in sizes]
    assert committee_size(electorate, delta) == brute_force(fails)


@pytest.mark.parametrize("honest", [101, 104, 115])
def test_committees_in_a_federation_just_above_the_quota_match_brute_force(honest: int) -> None:
    """Here the chance of failure first rises towards one half, and hundreds of blocks must be searched."""
    electorate = Electorate(300, honest, 2)
    for delta in (0.5, 0.45, 0.3, 1e-3):
        fails = [hypergeometric_tail(electorate.quota(v) - 1, electorate, v) > delta for v in range(301)]
        assert committee_size(electorate, delta) == brute_force(fails)


@pytest.mark.parametrize("share", [0.4, 0.2])
def test_a_million_clients_need_a_committee_of_thousands(share: float) -> None:
    electorate = Electorate.smallest(1_000_000, round(share * 1_000_000))
    size = committee_size(electorate, 1e-6)
    assert size is not None
    hoeffding = math.log(1e6) / (2 * (share - 1 / (electorate.list_size + 1)) ** 2)
    assert size.smallest <= size.onwards < hoeffding < 7000
    for voters, safe in ((size.smallest, True), (size.smallest - 1, False), (size.onwards - 1, False)):
        assert (committee_failure(electorate, voters) <= 1e-6) == safe


def test_one_honest_client_in_a_million_must_be_in_the_committee() -> None:
    assert committee_size(Electorate.smallest(1_000_000, 1), 2.5e-6) == Size(999_998, 999_998)


def test_without_a_quota_no_committee_is_safe() -> None:
    assert committee_size(Electorate(35, 14, 1), 0.5) is None
