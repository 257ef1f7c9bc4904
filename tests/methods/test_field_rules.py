"""The field's rules give what their papers say: ByzFL's answers, and twins that are plain and slow."""

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng
from numpy.typing import NDArray
from torch import Tensor

import tests.answers
from lidfl.methods.aggregators import aggregator
from lidfl.methods.aggregators.covers import branches, first_independent, has_cover
from lidfl.methods.aggregators.suspicion import cosines, largest_cluster, majority_component
from lidfl.methods.pipelines import mixed
from lidfl.methods.preaggregators import preaggregator
from lidfl.types import Parameters, Updates
from tests.vectors import close, gridded, normal, on_a_line, rows, scattered

CASES = json.loads((Path(tests.answers.__file__).parent / "byzfl.json").read_text())
Matrix = NDArray[np.float64]
few = settings(max_examples=25)
liars = st.integers(0, 4)


def apply(spec: str, updates: Updates, num_honest: int = 1, seed: int = 0) -> Parameters:
    """A rule's vector."""
    outcome = aggregator.resolve(spec)(updates, num_honest=num_honest, rng=default_rng(seed))
    assert isinstance(outcome, Tensor)
    return outcome


def prepared(spec: str, updates: Updates) -> Updates:
    """What a pre-aggregator makes of updates."""
    return mixed(updates, preaggregator.resolve(spec)(updates, num_honest=1, rng=default_rng(0)))


# ByzFL.


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['input']}, f={case['f']}")
def test_rules_answer_as_byzfl_does(case: dict[str, Any]) -> None:
    updates, f, byzfl = torch.tensor(case["updates"]), case["f"], case["answers"]
    specs = {"geometric_median": "geometric_median", "monna": f"monna:trusted=0,f={f}"}
    for name in ("trimmed_mean", "meamed", "monna", "geometric_median"):
        spec = specs.get(name, f"{name}:f={f}")
        torch.testing.assert_close(apply(spec, updates), torch.tensor(byzfl[name]), rtol=2e-5, atol=2e-5)
    for spec, name in ((f"nnm:f={f}", "nnm"), (f"arc:f={f}", "arc"), ("clip:2.0", "clip")):
        torch.testing.assert_close(prepared(spec, updates), torch.tensor(byzfl[name]), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case["f"] >= 1 and len(case["updates"]) >= 2 * case["f"] + 1]
)
def test_krum_answers_as_byzfl_does_which_counts_one_neighbour_more(case: dict[str, Any]) -> None:
    updates, f = torch.tensor(case["updates"]), case["f"]
    n = len(updates)
    assert close(apply("krum", updates, num_honest=n - f + 1), torch.tensor(case["answers"]["krum"]))
    ours = apply(f"multi_krum:f={f - 1},select={n - f}", updates)
    assert close(ours, torch.tensor(case["answers"]["multi_krum"]))


# Twins.


def trimmed(column: Sequence[float], f: int) -> float:
    kept = sorted(column)[f : len(column) - f]
    return sum(kept) / len(kept)


@given(updates=gridded(), f=liars)
@few
def test_trimmed_mean_leaves_out_the_f_lowest_and_highest(updates: Updates, f: int) -> None:
    f_used = min(f, (len(updates) - 1) // 2)
    expected = [trimmed(column, f_used) for column in updates.T.tolist()]
    assert close(apply(f"trimmed_mean:f={f}", updates), torch.tensor(expected))


@given(updates=gridded(), f=liars)
@few
def test_meamed_is_the_mean_of_values_nearest_to_the_median_and_of_ties_the_lower(updates: Updates, f: int) -> None:
    keep = len(updates) - min(f, (len(updates) - 1) // 2)
    middle = np.median(updates.numpy(), axis=0)
    kept = [
        sorted(column, key=lambda x, m=m: (abs(x - m), x))[:keep]  # type: ignore[misc]
        for column, m in zip(updates.T.tolist(), middle, strict=True)
    ]
    assert close(apply(f"meamed:f={f}", updates), torch.tensor(kept).mean(1))


def squared(points: Sequence[Sequence[float]], i: int, j: int) -> float:
    return sum((a - b) ** 2 for a, b in zip(points[i], points[j], strict=True))


def krum_order(points: Sequence[Sequence[float]], left: Sequence[int], f: int) -> list[int]:
    """Rows from the lowest score to the highest."""
    neighbours = max(1, len(left) - f - 2)
    score = {i: sum(sorted(squared(points, i, j) for j in left if j != i)[:neighbours]) for i in left}
    total = {i: sum(squared(points, i, j) for j in left) for i in left}
    return sorted(left, key=lambda i: (score[i], total[i], i))


@given(updates=gridded(), f=liars)
@few
def test_multi_krum_averages_the_lowest_scores_each_once(updates: Updates, f: int) -> None:
    n = len(updates)
    f_used = min(f, max(0, (n - 3) // 2))
    best = krum_order(updates.tolist(), range(n), f_used)[: n - f_used]
    assert close(apply(f"multi_krum:f={f}", updates), updates[best].mean(0))


@given(updates=gridded(12), f=liars)
@few
def test_bulyan_picks_distinct_rows_by_krum_and_averages_around_their_median(updates: Updates, f: int) -> None:
    n = len(updates)
    f_used = min(f, max(0, (n - 3) // 4))
    left, picked = list(range(n)), []
    for _ in range(n - 2 * f_used):
        picked.append(krum_order(updates.tolist(), left, f_used)[0])
        left.remove(picked[-1])
    theta = len(picked)
    expected = apply(f"meamed:f={2 * f_used}", updates[picked])
    if 4 * f_used >= theta:  # beyond the range of meamed alone
        columns = updates[picked].T.tolist()
        middle = np.median(updates[picked].numpy(), axis=0)
        kept = [
            sorted(column, key=lambda x, m=m: (abs(x - m), x))[: theta - 2 * f_used]  # type: ignore[misc]
            for column, m in zip(columns, middle, strict=True)
        ]
        expected = torch.tensor(kept).mean(1)
    assert close(apply(f"bulyan:f={f}", updates), expected)


@given(updates=gridded(9), f=liars)
@few
def test_mda_finds_a_subset_of_the_smallest_diameter(updates: Updates, f: int) -> None:
    outcome = apply(f"mda:f={f}", updates)
    assert any(close(outcome, mean) for mean in means_of_smallest_diameter(updates, f))


@pytest.mark.parametrize("case", [case for case in CASES if "mda" in case["answers"]])
def test_mda_and_byzfl_find_the_same_diameter(case: dict[str, Any]) -> None:
    means = means_of_smallest_diameter(torch.tensor(case["updates"]), case["f"])
    for answer in (
        apply(f"mda:f={case['f']}", torch.tensor(case["updates"])),
        torch.tensor(case["answers"]["mda"]),
    ):
        assert any(close(answer, mean) for mean in means)


def means_of_smallest_diameter(updates: Updates, f: int) -> list[Parameters]:
    """The means of all subsets that have it: several share their two farthest members."""
    n, points = len(updates), updates.tolist()
    keep = n - min(f, (n - 1) // 2)

    def diameter(subset: Sequence[int]) -> float:
        return max((squared(points, i, j) for i, j in itertools.combinations(subset, 2)), default=0)

    subsets = list(itertools.combinations(range(n), keep))
    least = min(map(diameter, subsets))
    return [updates[list(subset)].mean(0) for subset in subsets if diameter(subset) <= least]


def test_mda_is_exact_where_all_subsets_are_too_many_to_try() -> None:
    # 22 close together of 43: 10^12 subsets, of which this one is hidden among wide rows.
    updates = 10 * normal(43, 6, 1)
    close_ones = default_rng(2).permutation(43)[:22]
    updates[close_ones] = 0.1 * normal(22, 6, 3)
    assert close(apply("mda:f=21", updates), updates[close_ones].mean(0))


@given(
    edges=st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda e: e[0] < e[1])),
    size=st.integers(0, 8),
)
@settings(max_examples=60)
def test_covers_are_found_if_and_only_if_there_are_any(edges: set[tuple[int, int]], size: int) -> None:
    graph = [sum(1 << j for j in range(8) if (min(i, j), max(i, j)) in edges) for i in range(8)]
    subsets = itertools.combinations(range(8), size)
    exists = any(all(i in cover or j in cover for i, j in edges) for cover in subsets)
    assert has_cover(graph, 0b11111111, size) == exists
    if exists:
        kept = first_independent(graph, 8 - size)
        assert len(kept) == 8 - size
        assert not any((i, j) in edges for i, j in itertools.combinations(kept, 2))


def test_a_search_for_covers_has_as_many_branches_as_the_recurrence_says() -> None:
    assert [branches(f) for f in range(8)] == [1, 1, 1, 2, 3, 4, 6, 9]


def test_monna_averages_the_nearest_to_the_trusted_row() -> None:
    assert apply("monna:trusted=3,f=2", on_a_line(0, 10, 11, 13, 30)).item() == pytest.approx(34 / 3)


def test_cge_averages_the_shortest() -> None:
    assert apply("cge:f=1", rows([3, 4], [0, 1], [1, 0])).tolist() == [0.5, 0.5]


@given(updates=scattered())
@few
def test_no_step_from_the_geometric_median_lowers_the_sum_of_distances(updates: Updates) -> None:
    def total(centre: Tensor) -> float:
        return float((updates.double() - centre).norm(dim=1).sum())

    centre = apply("geometric_median", updates).double()
    for step in 1e-3 * normal(10, updates.shape[1], 0).double():
        assert total(centre) <= total(centre + step) + 1e-6


def test_the_geometric_median_of_a_majority_that_agrees_is_what_they_say() -> None:
    updates = torch.cat([torch.full((4, 3), 0.7), 1e6 * normal(3, 3, 1)])
    assert close(apply("geometric_median", updates), torch.full((3,), 0.7))


@given(seed=st.integers(0, 1000))
@few
def test_mca_stands_still_where_the_kernel_weighs_as_it_says(seed: int) -> None:
    updates = torch.cat([normal(6, 3, seed), 50 + normal(3, 3, seed + 1)]).double()
    centre = apply("mca:iterations=200", updates)
    squares = (updates - centre).square().sum(1)
    weights = torch.exp(-squares / (2 * squares.median()))
    assert close(centre, (weights @ updates) / weights.sum(), 1e-4)
    assert squares[:6].sqrt().max() < 10, "the outcome is where most are"


def covariance_top(points: Matrix, weights: Matrix) -> tuple[float, Matrix, Matrix]:
    """The weighted mean's covariance, its top eigenvalue and vector, in as many dimensions as there are."""
    mean = weights @ points / weights.sum()
    spread = points - mean
    values, vectors = np.linalg.eigh((weights[:, None] * spread).T @ spread / weights.sum())
    return float(values[-1]), vectors[:, -1], mean


def naive_caf(points: Matrix, f: int) -> Matrix:
    weights, least, best = np.ones(len(points)), np.inf, points.mean(0)
    while weights.sum() > len(points) - 2 * f:
        value, vector, mean = covariance_top(points, weights)
        if value < least:
            least, best = value, mean
        scores = ((points - mean) @ vector) ** 2 * (weights > 0)
        weights = weights * (1 - scores / scores.max())
    return np.asarray(best)


@given(updates=scattered(9).filter(lambda u: len(u) > 4), f=st.integers(0, 3))
@few
def test_caf_is_the_filter_in_the_space_of_updates(updates: Updates, f: int) -> None:
    f = min(f, (len(updates) - 1) // 2)
    expected = torch.from_numpy(naive_caf(updates.double().numpy(), f)).float()
    assert close(apply(f"caf:f={f}", updates), expected, 1e-3)


@given(updates=scattered(8), f=liars)
@few
def test_smea_is_the_subset_whose_covariance_has_the_smallest_top_eigenvalue(updates: Updates, f: int) -> None:
    n, points = len(updates), updates.double().numpy()
    keep = n - min(f, (n - 1) // 2)
    subsets = list(itertools.combinations(range(n), keep))
    tops = [covariance_top(points[list(subset)], np.ones(keep))[0] for subset in subsets]
    best = {i for i, top in enumerate(tops) if top <= min(tops) + 1e-9}
    outcome = apply(f"smea:f={f}", updates)
    assert any(close(outcome, updates[list(subsets[i])].mean(0)) for i in best)


def test_dnc_drops_the_largest_projections_on_the_top_singular_vector() -> None:
    updates = torch.cat([normal(8, 5, 1), 5 + normal(3, 5, 2)])
    centred = (updates - updates.mean(0)).double().numpy()
    scores = (centred @ np.linalg.svd(centred)[2][0]) ** 2
    kept = np.argsort(scores)[:8]
    assert close(apply("dnc:f=3", updates), updates[kept].mean(0))


def test_dnc_with_other_coordinates_each_time_keeps_whom_it_always_keeps() -> None:
    updates = torch.cat([normal(12, 300, 1), 5 + normal(4, 300, 2)])
    outcome = apply("dnc:coordinates=40,iterations=3", updates, num_honest=12)
    assert (outcome - updates[:12].mean(0)).norm() < 5, "far from the four, which are 80 away"


def naive_foolsgold(points: Matrix) -> Matrix:
    """The paper's algorithm 1 with this round as its history, pair by pair."""
    n = len(points)
    lengths = np.linalg.norm(points, axis=1)
    cos = [
        [points[i] @ points[j] / (lengths[i] * lengths[j]) if i != j else 0.0 for j in range(n)] for i in range(n)
    ]
    top = [max(line) for line in cos]
    for i, j in itertools.product(range(n), repeat=2):
        if top[j] > top[i]:
            cos[i][j] *= top[i] / top[j]
    alphas = [min(1.0, max(0.0, 1 - max(line))) for line in cos]
    alphas = [min(0.99, alpha / max(alphas)) for alpha in alphas]
    weights = np.array([0 if a == 0 else min(1, max(0, np.log(a / (1 - a)) + 0.5)) for a in alphas])
    return np.asarray(weights @ points / weights.sum())


@given(seed=st.integers(0, 1000))
@few
def test_foolsgold_weighs_as_algorithm_1_does(seed: int) -> None:
    updates = normal(6, 4, seed)
    assert close(
        apply("foolsgold", updates), torch.from_numpy(naive_foolsgold(updates.double().numpy())).float(), 1e-4
    )


def test_foolsgold_ignores_sybils_that_say_the_same() -> None:
    updates = torch.cat([normal(4, 50, 1), torch.full((6, 50), 3.0)])
    assert (apply("foolsgold", updates) - updates[:4].mean(0)).norm() < 0.2 * (
        updates[4] - updates[:4].mean(0)
    ).norm()


@given(seed=st.integers(0, 1000), size=st.integers(4, 12))
@few
def test_flames_cluster_is_the_one_that_hdbscan_finds(seed: int, size: int) -> None:
    from sklearn.cluster import HDBSCAN

    updates = normal(size, 4, seed).double().numpy()
    distances = 1 - cosines(updates @ updates.T)
    np.fill_diagonal(distances, 0)
    options = dict(min_cluster_size=size // 2 + 1, min_samples=1, allow_single_cluster=True, copy=True)
    labels = HDBSCAN(metric="precomputed", **options).fit(distances).labels_
    assert majority_component(distances).tolist() == (labels == 0).tolist()


def test_flame_clips_the_majority_to_the_median_norm_and_adds_noise_in_proportion() -> None:
    # Cosines put the last two apart; the median norm of all is √2, so (4, 0) and (2, 0) count as (√2, 0).
    updates = rows([1, 0], [4, 0], [2, 0], [-9, 1], [-9, 1])
    assert close(
        apply("flame:noise=0", rows([1, 0], [4, 0], [2, 0], [-1, 1], [-1, 1])), torch.tensor([3.8284 / 3, 0]), 1e-4
    )
    wide = torch.full((3, 4000), 1.0)
    drawn = apply("flame:noise=0.5", wide, seed=1) - 1
    assert drawn.std().item() == pytest.approx(0.5 * 4000**0.5, rel=0.05)
    assert apply("flame:noise=0", updates)[0] > 0


@given(seed=st.integers(0, 1000), size=st.integers(6, 20))
@few
def test_signguards_cluster_is_the_largest_that_mean_shift_finds(seed: int, size: int) -> None:
    from sklearn.cluster import MeanShift, estimate_bandwidth

    rng = default_rng(seed)
    points = np.vstack([rng.normal(0.3, 0.01, (size, 3)), rng.normal(0.6, 0.01, (size // 2, 3))])
    labels = MeanShift(bandwidth=estimate_bandwidth(points, quantile=0.5)).fit(points).labels_
    assert largest_cluster(points).tolist() == (labels == np.bincount(labels).argmax()).tolist()


def test_signguard_leaves_out_odd_norms_and_odd_signs() -> None:
    honest = 1 + 0.1 * normal(6, 200, 1)
    updates = torch.cat([honest, 100 * honest[:1], -honest[:2]])
    assert close(apply("signguard", updates), honest.mean(0), 0.05)


def test_arc_clips_the_longest_to_the_next_and_nnm_averages_the_nearest() -> None:
    # n = 4, f = 1: ⌊2 · 3/4⌋ = 1 is clipped, to the norm of the next.
    assert prepared("arc:f=1", on_a_line(1, -2, 3, 100)).flatten().tolist() == [1, -2, 3, 3]
    assert close(prepared("nnm:f=1", on_a_line(0, 1, 5)).flatten(), torch.tensor([0.5, 0.5, 3.0]))


def test_bucketing_averages_a_random_order_in_buckets() -> None:
    updates = normal(7, 3, 1)
    buckets = prepared("bucketing:size=3", updates)
    order = default_rng(0).permutation(7)
    assert close(buckets, torch.stack([updates[order[i : i + 3]].mean(0) for i in (0, 3, 6)]))


# Promises.

GROUPING = {"rknn", "meb"}
FIELD = sorted({*aggregator, "flame:noise=0"} - {"flame"} - GROUPING)
ABSOLUTE = {"norm", "cclip", "gm"}
"""Rules with a length in them, to which scale matters."""
NOT_CENTRED = {"cge", "signguard", "foolsgold", "flame:noise=0", *ABSOLUTE} - {"gm"}
"""Rules to which the origin matters."""
TOP = 3.4028234663852886e38


@pytest.mark.parametrize("spec", sorted(set(FIELD) - {"monna"}))
def test_the_order_of_clients_changes_nothing(spec: str) -> None:
    for seed in range(4):
        updates = normal(9, 30, seed)
        order = default_rng(seed).permutation(9)
        assert close(apply(spec, updates[order], 6), apply(spec, updates, 6), 1e-4)


@pytest.mark.parametrize("spec", FIELD)
def test_a_shift_or_a_scale_of_all_is_one_of_the_outcome(spec: str) -> None:
    updates, shift = normal(9, 30, 5), normal(1, 30, 6)[0]
    if spec not in NOT_CENTRED:
        assert close(apply(spec, updates + shift, 6), apply(spec, updates, 6) + shift, 1e-4)
    for factor in (2.0**-20, 2.0**20) if spec not in ABSOLUTE else ():
        assert close(apply(spec, factor * updates, 6) / factor, apply(spec, updates, 6), 1e-4)


@pytest.mark.parametrize("spec", FIELD)
def test_doubles_are_left_alone_as_floats_are(spec: str) -> None:
    updates = normal(9, 30, 5).double()
    before = updates.clone()
    assert apply(spec, updates, 6).dtype == torch.double
    assert torch.equal(updates, before)


EXTREMES: dict[str, Callable[[], Updates]] = {
    "largest": lambda: torch.full((7, 5), TOP),
    "opposite": lambda: TOP * torch.sign(normal(7, 5, 1)),
    "one huge": lambda: torch.cat([normal(6, 5, 1), torch.full((1, 5), -TOP)]),
    "most huge": lambda: torch.cat([normal(2, 5, 1), TOP * torch.sign(normal(5, 5, 2))]),
    "tiny": lambda: 1e-44 * normal(7, 5, 1),
    "zeros": lambda: torch.zeros(7, 5),
    "most zeros": lambda: torch.cat([torch.zeros(5, 5), TOP * torch.sign(normal(2, 5, 2))]),
    "duplicates": lambda: normal(1, 5, 1).repeat(7, 1),
    "one coordinate": lambda: normal(7, 1, 1),
    "two": lambda: TOP * torch.sign(normal(2, 5, 3)),
    "alone": lambda: torch.full((1, 5), TOP),
}


@pytest.mark.parametrize("name", EXTREMES)
@pytest.mark.parametrize("spec", FIELD)
def test_finite_updates_have_a_finite_outcome_however_extreme(spec: str, name: str) -> None:
    updates = EXTREMES[name]()
    for num_honest in (1, len(updates)):
        outcome = apply(spec, updates, num_honest)
        assert outcome.shape == updates.shape[1:]
        assert outcome.isfinite().all()


@pytest.mark.parametrize("step", ["nnm", "bucketing", "clip", "arc"])
@pytest.mark.parametrize("name", EXTREMES)
def test_what_pre_aggregators_make_of_finite_updates_is_finite(step: str, name: str) -> None:
    assert prepared(step, EXTREMES[name]()).isfinite().all()


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("spec", FIELD)
def test_a_row_that_is_not_finite_counts_as_no_row(spec: str, broken: float) -> None:
    updates = normal(9, 30, 5)
    spoilt = torch.cat([updates, updates[:1]])
    spoilt[9, 17] = broken
    assert torch.equal(apply(spec, spoilt, 6), apply(spec, updates, 6))
    assert torch.equal(apply(spec, torch.full((3, 4), broken)), torch.zeros(4))


@pytest.mark.parametrize("spec", GROUPING)
def test_no_group_has_a_row_that_is_not_finite(spec: str) -> None:
    updates = normal(9, 30, 5)
    spoilt = torch.cat([updates[:4], torch.full((1, 30), float("nan")), updates[4:]])
    found = aggregator.resolve(spec)(spoilt, num_honest=4, rng=default_rng(0))
    expected = aggregator.resolve(spec)(updates, num_honest=4, rng=default_rng(0))
    moved = [[row + (row >= 4) for row in group.tolist()] for group in expected]
    assert [group.tolist() for group in found] == moved


@pytest.mark.parametrize("spec", sorted(set(FIELD) - {"foolsgold", "monna", "cge", "fedavg", "gm"}))
def test_a_minority_far_away_does_not_carry_the_outcome_away(spec: str) -> None:
    honest = normal(8, 20, 1)
    updates = torch.cat([honest, 1e6 + normal(2, 20, 2)])
    assert (apply(spec, updates, 8) - honest.mean(0)).norm() < 5
