"""Aggregators give what the paper's formulas give, whoever the clients are and however extreme their updates."""

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.random import Generator, default_rng
from torch import Tensor

from lidfl.methods.aggregators import Groups, aggregator, cwm, fedavg, gm, means_and_members, meb, norm, rknn
from lidfl.types import Parameters, Updates
from tests.vectors import close, gridded, normal, on_a_line, rows, scattered

VECTOR_RULES = [fedavg, gm, norm, cwm]
GROUP_RULES = ["rknn", "meb"]
Sets = list[frozenset[int]]
Rule = Callable[[Updates], Parameters]

quick = settings(max_examples=40)
seeds = st.integers(0, 2**32)


class Starts:
    """A stand-in for the generator: RKNN starts from the first of these rows that is left."""

    def __init__(self, order: Sequence[int]) -> None:
        self.order = order

    def choice(self, left: Sequence[int]) -> int:
        return next(row for row in self.order if row in left)


def as_sets(groups: Groups) -> Sets:
    return [frozenset(group.tolist()) for group in groups]


def group(rule: str, updates: Updates, num_honest: int, order: Sequence[int] | None = None) -> Sets:
    """The groups that a rule finds; RKNN starts from rows in the given order."""
    if rule == "meb":
        return as_sets(meb(updates, num_honest=num_honest))
    rng = Starts(range(len(updates)) if order is None else order)
    return as_sets(rknn(updates, num_honest=num_honest, rng=cast(Generator, rng)))


# By hand.


def test_fedavg_is_the_mean() -> None:
    assert fedavg(rows([1, 2], [3, 6])).tolist() == [2, 4]


@pytest.mark.parametrize(
    ("iterations", "expected"),
    [
        (0, 2.0),  # the mean
        (1, 1.2),  # distances 2, 2, 4: 6/4 over 1/2 + 1/2 + 1/4
        (2, 2 / 3),  # distances 1.2, 1.2, 4.8: 6/4.8 over 2/1.2 + 1/4.8
    ],
)
def test_gm_iterates_from_the_mean_with_weights_of_one_over_distance(iterations: int, expected: float) -> None:
    assert gm(on_a_line(0, 0, 6), iterations=iterations).item() == pytest.approx(expected)


def test_gm_takes_one_iteration_unless_told_otherwise() -> None:
    assert torch.equal(gm(normal(5, 3, 0)), gm(normal(5, 3, 0), iterations=1))


def test_gm_weighs_an_update_at_the_centre_by_a_hundred_thousand() -> None:
    # The mean is 0; weights 1/3, 10^5, 1, 1/2.
    assert gm(on_a_line(-3, 0, 1, 2)).item() == pytest.approx(1 / (1e5 + 1 + 1 / 2 + 1 / 3))


def test_gm_of_many_iterations_is_the_fermat_point() -> None:
    # Three corners of a square: the point that sees all sides under 120 degrees is ((3 - √3)/6, (3 - √3)/6).
    corner = (3 - 3**0.5) / 6
    assert close(gm(rows([0, 0], [1, 0], [0, 1]), iterations=100), torch.tensor([corner, corner]))


def test_norm_scales_long_updates_down_and_leaves_short_ones() -> None:
    # (6, 8) has norm 10 and becomes (3, 4).
    assert close(norm(rows([6, 8], [0.3, 0.4], [0, 0]), bound=5), torch.tensor([1.1, 4.4 / 3]))


@pytest.mark.parametrize("size", [0.3, 300, 1e30])
def test_norm_has_the_papers_bound(size: float) -> None:
    assert norm(rows([0, size])).tolist() == pytest.approx([0, 0.215771])


def test_cwm_of_an_odd_number_is_the_middle_of_each_coordinate() -> None:
    assert cwm(rows([1, 30], [3, 10], [2, -5])).tolist() == [2, 10]


def test_cwm_of_an_even_number_is_the_mean_of_the_middle_two() -> None:
    assert cwm(rows([1, 30], [3, 10], [2, -5], [100, 20])).tolist() == [2.5, 15]


@given(updates=scattered())
@quick
def test_cwm_is_the_median_that_numpy_computes(updates: Updates) -> None:
    assert cwm(updates).tolist() == np.median(updates.numpy(), axis=0).tolist()


def test_rknn_groups_a_random_update_with_its_nearest() -> None:
    # From 0 or 1 the nearest two are 0 and 1; from 3 they are 3 and 1.
    found = [as_sets(rknn(on_a_line(0, 1, 3), num_honest=2, rng=default_rng(seed))) for seed in range(600)]
    from_the_left, from_the_right = [{0, 1}, {2}], [{2, 1}, {0}]
    assert all(groups in (from_the_left, from_the_right) for groups in found)
    assert 350 < found.count([frozenset(members) for members in from_the_left]) < 450


def test_rknn_starts_again_among_the_rest() -> None:
    updates = on_a_line(0, 10, 1, 11, 2, 30)
    assert group("rknn", updates, 2, order=[1, 4, 0, 5]) == [{1, 3}, {4, 2}, {0, 5}]


def test_meb_takes_the_tightest_ball_first() -> None:
    # Distances to the third nearest, itself counted: 5, 2, 1, 2, 15; then 0 and 20 are left.
    assert group("meb", on_a_line(0, 4, 5, 6, 20), 3) == [{1, 2, 3}, {0, 4}]


def test_one_honest_client_makes_every_update_its_own_group() -> None:
    for rule in GROUP_RULES:
        assert sorted(map(sorted, group(rule, normal(4, 2, 0), 1))) == [[0], [1], [2], [3]]


@pytest.mark.parametrize(("spec", "expected"), [("krum", 1.0), ("krum:2", 0.5)])
def test_krum_is_the_update_closest_to_its_nearest(spec: str, expected: float) -> None:
    # Four honest clients, so two neighbours count: scores 1 + 9, 1 + 4, 4 + 9, 49 + 81.
    outcome = aggregator.resolve(spec)(on_a_line(0, 1, 3, 10), num_honest=4)
    assert isinstance(outcome, Tensor)
    assert outcome.item() == expected


@pytest.mark.parametrize(("iterations", "expected"), [(1, 0.75), (2, 1.125), (3, 1.3125)])
def test_cclip_moves_by_the_mean_of_clipped_differences(iterations: int, expected: float) -> None:
    # From 0: (1 + 0.5)/2 = 0.75; then (1 − 0.25)/2 = 0.375; then (1 − 0.625)/2 = 0.1875.
    outcome = aggregator.resolve(f"cclip:iterations={iterations}")(on_a_line(3, 0.5))
    assert isinstance(outcome, Tensor)
    assert outcome.item() == pytest.approx(expected)


def test_a_group_is_proposed_as_its_mean_and_its_rows() -> None:
    updates = rows([1, 2], [3, 6], [100, 0])
    (pair, members), (single, alone) = means_and_members([np.array([1, 0]), np.array([2])], updates)
    assert (pair.tolist(), members.tolist()) == ([2, 4], [1, 0])
    assert (single.tolist(), alone.tolist()) == ([100, 0], [2])


def test_a_vector_is_proposed_as_it_is_from_all_rows() -> None:
    vector = torch.tensor([7.0, 8.0])
    ((proposed, members),) = means_and_members(vector, rows([1, 2], [3, 6], [0, 0]))
    assert torch.equal(proposed, vector)
    assert members.tolist() == [0, 1, 2]


# Brute-force twins, in exact integer arithmetic; ties go to the lowest row.


def distance(one: Sequence[int], other: Sequence[int]) -> int:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


def neighbours(points: list[list[int]], left: list[int], centre: int, count: int) -> list[int]:
    return sorted(left, key=lambda row: distance(points[row], points[centre]))[:count]


def naive_rknn(points: list[list[int]], num_honest: int, rng: Generator) -> list[list[int]]:
    """The paper's algorithm 2, line by line."""
    left = list(range(len(points)))
    groups = []
    while left:
        start = int(rng.choice(left))
        groups.append(neighbours(points, left, start, num_honest))
        left = [row for row in left if row not in groups[-1]]
    return groups


def naive_meb(points: list[list[int]], num_honest: int) -> list[list[int]]:
    """The paper's algorithm 3, line by line."""
    left = list(range(len(points)))
    groups = []
    while left:
        balls = [neighbours(points, left, centre, num_honest) for centre in left]
        radii = [
            max(distance(points[row], points[centre]) for row in ball)
            for centre, ball in zip(left, balls, strict=True)
        ]
        groups.append(balls[radii.index(min(radii))])
        left = [row for row in left if row not in groups[-1]]
    return groups


@given(updates=gridded(), num_honest=st.integers(1, 8), seed=seeds)
@settings(max_examples=100)
def test_rknn_is_algorithm_2(updates: Updates, num_honest: int, seed: int) -> None:
    points = updates.int().tolist()
    found = rknn(updates, num_honest=num_honest, rng=default_rng(seed))
    assert [members.tolist() for members in found] == naive_rknn(points, num_honest, default_rng(seed))


@given(updates=gridded(), num_honest=st.integers(1, 8))
@settings(max_examples=100)
def test_meb_is_algorithm_3(updates: Updates, num_honest: int) -> None:
    found = meb(updates, num_honest=num_honest)
    assert [members.tolist() for members in found] == naive_meb(updates.int().tolist(), num_honest)


# Promises of every rule.


@pytest.mark.parametrize("rule", list(aggregator))
@given(updates=scattered(), num_honest=st.integers(1, 8), seed=seeds)
@settings(max_examples=15)
def test_the_input_is_never_modified(rule: str, updates: Updates, num_honest: int, seed: int) -> None:
    before = updates.clone()
    aggregator.resolve(rule)(updates, num_honest=num_honest, rng=default_rng(seed))
    assert torch.equal(updates, before)


@pytest.mark.parametrize("rule", list(aggregator))
def test_the_same_input_and_generator_give_the_same_bits(rule: str) -> None:
    def outcome() -> list[list[float]]:
        found = aggregator.resolve(rule)(normal(7, 3, 1), num_honest=3, rng=default_rng(2))
        return [vector.tolist() for vector, _ in means_and_members(found, normal(7, 3, 1))]

    assert outcome() == outcome()


# Promises of the rules that give one vector.


@pytest.mark.parametrize("rule", VECTOR_RULES)
@given(updates=scattered(), seed=seeds)
@quick
def test_the_order_of_clients_changes_nothing(rule: Rule, updates: Updates, seed: int) -> None:
    shuffled = updates[default_rng(seed).permutation(len(updates))]
    assert close(rule(shuffled), rule(updates))


@pytest.mark.parametrize("rule", [fedavg, gm, cwm])
@given(updates=scattered(), seed=seeds)
@quick
def test_a_shift_of_all_updates_shifts_the_outcome(rule: Rule, updates: Updates, seed: int) -> None:
    shift = normal(1, updates.shape[1], seed)[0]
    assume(len(updates) > 1)
    assert close(rule(updates + shift), rule(updates) + shift, 1e-4)


@pytest.mark.parametrize("rule", [fedavg, cwm])
@given(updates=scattered(), factor=st.floats(2**-20, 2**20, width=32))
@quick
def test_scaling_all_updates_scales_the_outcome(rule: Rule, updates: Updates, factor: float) -> None:
    assert close(rule(factor * updates) / factor, rule(updates))


@pytest.mark.parametrize("rule", [fedavg, gm, cwm])
@given(updates=st.one_of(scattered(), gridded()))
@quick
def test_the_outcome_lies_within_the_range_of_each_coordinate(rule: Rule, updates: Updates) -> None:
    outcome = rule(updates)
    assert (outcome >= updates.amin(0) - 1e-5).all()
    assert (outcome <= updates.amax(0) + 1e-5).all()


@pytest.mark.parametrize("rule", VECTOR_RULES)
@given(update=scattered(1), count=st.integers(1, 9))
@quick
def test_when_all_agree_the_outcome_is_what_they_say(rule: Rule, update: Updates, count: int) -> None:
    update = 0.215771 * update / update.norm().clamp_min(1)  # within the bound of norm
    assert close(rule(update.expand(count, -1)), update[0])


@given(updates=scattered(), scale=st.sampled_from([0.0, 1e-30, 1.0, 1e12]), bound=st.floats(0.01, 10))
@quick
def test_norms_outcome_is_never_longer_than_the_bound(updates: Updates, scale: float, bound: float) -> None:
    assert norm(scale * updates, bound=bound).norm() <= bound * (1 + 1e-5)


@given(updates=scattered(), iterations=st.integers(1, 5))
@quick
def test_no_iteration_of_gm_moves_away_from_the_geometric_median(updates: Updates, iterations: int) -> None:
    def sum_of_distances(centre: Parameters) -> float:
        return float((updates - centre).norm(dim=1).sum())

    before, after = (gm(updates, iterations=count) for count in (iterations - 1, iterations))
    assert sum_of_distances(after) <= sum_of_distances(before) + 1e-4


# Promises of the rules that give groups.


@pytest.mark.parametrize("rule", GROUP_RULES)
@given(updates=st.one_of(scattered(), gridded()), num_honest=st.integers(1, 10))
@quick
def test_groups_are_a_partition_and_all_but_the_last_have_k_rows(
    rule: str, updates: Updates, num_honest: int
) -> None:
    groups = group(rule, updates, num_honest)
    assert sorted(row for members in groups for row in members) == list(range(len(updates)))
    assert all(len(members) == num_honest for members in groups[:-1])
    assert 1 <= len(groups[-1]) <= num_honest


def ambiguous(updates: Updates, num_honest: int) -> bool:
    """Whether two different balls are the tightest at once: a and b can each be the other's k-th nearest."""
    points = updates.double()
    left = list(range(len(points)))
    while len(left) > num_honest:
        found: dict[frozenset[int], float] = {}
        for centre in left:
            distances = {row: float((points[row] - points[centre]).norm()) for row in left}
            ball = sorted(left, key=lambda row, d=distances: d[row])[:num_honest]  # type: ignore[misc]
            found[frozenset(ball)] = min(distances[ball[-1]], found.get(frozenset(ball), np.inf))
        radii = sorted(found.values())
        if len(radii) > 1 and radii[1] - radii[0] < 1e-9:
            return True
        tightest = min(found, key=lambda ball: found[ball])
        left = [row for row in left if row not in tightest]
    return False


@pytest.mark.parametrize("rule", GROUP_RULES)
@given(updates=scattered(), num_honest=st.integers(1, 8), seed=seeds)
@quick
def test_the_order_of_clients_changes_no_group(rule: str, updates: Updates, num_honest: int, seed: int) -> None:
    assume(rule == "rknn" or not ambiguous(updates, num_honest))
    old_row = default_rng(seed).permutation(len(updates)).tolist()
    new_row = np.argsort(old_row).tolist()
    groups = group(rule, updates[old_row], num_honest, order=new_row)
    renamed = [frozenset(old_row[row] for row in members) for members in groups]
    assert renamed == group(rule, updates, num_honest)


@pytest.mark.parametrize("rule", GROUP_RULES)
@given(updates=gridded(), num_honest=st.integers(1, 8), shift=st.integers(-1_000_000, 1_000_000))
@quick
def test_a_shift_of_all_updates_changes_no_group(rule: str, updates: Updates, num_honest: int, shift: int) -> None:
    assert group(rule, updates + shift, num_honest) == group(rule, updates, num_honest)


@pytest.mark.parametrize("rule", GROUP_RULES)
@given(updates=scattered(), num_honest=st.integers(1, 8), power=st.integers(-40, 40))
@quick
def test_scaling_all_updates_changes_no_group(rule: str, updates: Updates, num_honest: int, power: int) -> None:
    assert group(rule, 2.0**power * updates, num_honest) == group(rule, updates, num_honest)


# Exploded and far updates.

OUTLIERS = [1e2, 1e4, 1e6, 1e8, 1e12, 1e30, -3e38]


def two_clusters_and(outlier: float) -> Updates:
    """Even rows around 0, odd rows around 5 in each coordinate, and a last row far away."""
    updates = 0.01 * normal(11, 4, 3)
    updates[1::2] += 5
    updates[10] = outlier
    return updates


@pytest.mark.parametrize("outlier", OUTLIERS)
@pytest.mark.parametrize("rule", GROUP_RULES)
def test_one_far_update_does_not_blur_the_others(rule: str, outlier: float) -> None:
    groups = group(rule, two_clusters_and(outlier), 5)
    assert sorted(map(sorted, groups)) == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9], [10]]


@pytest.mark.parametrize("rule", GROUP_RULES)
@given(updates=scattered(), num_honest=st.integers(1, 8), exploded=st.sets(st.integers(0, 7)))
@quick
def test_exploded_updates_are_grouped_apart(
    rule: str, updates: Updates, num_honest: int, exploded: set[int]
) -> None:
    far = [row for row in range(len(updates)) if row in exploded]
    near = [row for row in range(len(updates)) if row not in exploded]
    updates[far] *= 1e30
    groups = group(rule, updates, num_honest, order=near + far)
    mixed = [members for members in groups if members & set(far) and members & set(near)]
    assert sorted(row for members in groups for row in members) == list(range(len(updates)))
    assert all(vector.isfinite().all() for vector, _ in means_and_members(_arrays(groups), updates))
    if rule == "rknn":  # it starts from those that are near: one group at most is filled up with far ones
        assert len(mixed) <= 1


def _arrays(groups: Sets) -> Groups:
    return [np.array(sorted(members)) for members in groups]


@pytest.mark.parametrize("rule", VECTOR_RULES)
@pytest.mark.parametrize("size", [1e20, 1e30])
def test_one_exploded_update_makes_nothing_of_the_outcome_nan(rule: Rule, size: float) -> None:
    outcome = rule(two_clusters_and(size))
    assert outcome.isfinite().all()


@pytest.mark.parametrize("rule", GROUP_RULES)
def test_attackers_who_all_send_the_same_are_taken_in_order(rule: str) -> None:
    updates = torch.cat([normal(1, 5000, 0).expand(20, -1), 1 + normal(5, 5000, 1)])
    groups = group(rule, updates, 7)
    assert groups[:2] == [set(range(7)), set(range(7, 14))]


@pytest.mark.parametrize("size", [0.0, 1e-30, 1e30])
@pytest.mark.parametrize("rule", GROUP_RULES)
def test_equal_updates_of_any_size_are_still_partitioned(rule: str, size: float) -> None:
    assert [len(members) for members in group(rule, torch.full((7, 3), size), 3)] == [3, 3, 1]
