"""A sweep in chapters: whatever varies besides the seed is a chapter, a row or a column."""

from dataclasses import replace
from math import sqrt

import pytest

from lidfl.report.scenes import mean_curve, scenes
from tests.report.by_hand import SWEEP, played


def test_a_band_is_the_mean_and_deviation_over_seeds() -> None:
    first, last = mean_curve(SWEEP[:2])
    assert (first.round, first.cell.mean, first.cell.deviation) == pytest.approx((5, 0.35, 0.05 * sqrt(2)))
    assert (last.round, last.cell.mean, last.cell.deviation) == pytest.approx((10, 0.7, 0.1 * sqrt(2)))
    assert len(last.cell.values) == 2
    assert {point.cell.deviation for point in mean_curve(SWEEP[:1])} == {None}


def test_a_model_that_diverged_keeps_its_accuracy() -> None:
    run = played("fedavg", 1, 0.1, curve=[(2, 0.3)])
    stopped = replace(run, summary={"deployed_accuracy": 0.1, "test_accuracy": 0.1, "diverged_at": 4})
    assert [(point.round, point.cell.mean) for point in mean_curve([stopped])] == [(2, 0.3), (10, 0.1)]


def test_runs_that_differ_in_more_than_their_seed_are_not_averaged() -> None:
    runs = [played("lidfl", 1, 0.5, list_size=size) for size in (2, 3)]
    (scene,) = scenes([*runs, played("fedavg", 1, 0.1)])
    assert scene.methods == ["lidfl 2", "lidfl 3", "fedavg 1"]
    fractions = scenes([played("lidfl", 1, 0.5, byzantine_fraction=fraction) for fraction in (0.6, 0.4)])
    titles = [chapter.title for chapter in fractions]
    assert titles == ["digits-lr, 40\u00a0% Byzantine", "digits-lr, 60\u00a0% Byzantine"]


def test_settings_that_vary_together_are_all_named() -> None:
    pairs = [(1, "plurality"), (3, "ranked")]
    (scene,) = scenes([played("lidfl", 1, 0.5, candidates=number, election=rule) for number, rule in pairs])
    assert scene.methods == ["lidfl 1 plurality", "lidfl 3 ranked"]


def test_rounds_tell_rows_apart_only_where_the_same_run_was_played_twice() -> None:
    short, long = (played("lidfl", 1, 0.5, attack="lie", rounds=rounds) for rounds in (10, 20))
    (scene,) = scenes([short, long])
    assert scene.methods == ["lidfl 10", "lidfl 20"]
    (scene,) = scenes([short, played("lidfl", 1, 0.5, attack="gauss", rounds=20)])
    assert scene.methods == ["lidfl"]


def test_seeds_that_were_run_for_different_rounds_are_not_averaged() -> None:
    (scene,) = scenes([played("lidfl", seed, 0.5, rounds=rounds) for seed, rounds in [(1, 10), (2, 20)]])
    assert scene.methods == ["lidfl 10", "lidfl 20"]
    assert {len(cell.values) for cell in scene.grid.cells.values()} == {1}


def test_an_attack_on_the_vote_is_a_column_unless_it_alone_tells_rows_apart() -> None:
    votes = ("random", "worst")
    (alone,) = scenes([played("lidfl", 1, 0.5, attack="gauss", vote_attack=vote) for vote in votes])
    assert (alone.methods, alone.attacks) == (["lidfl random", "lidfl worst"], ["gauss"])
    pairs = [(size, vote) for size in (2, 3) for vote in votes]
    runs = [
        played("lidfl", 1, 0.1 * size, attack="gauss", list_size=size, vote_attack=vote) for size, vote in pairs
    ]
    (both,) = scenes(runs)
    assert (both.methods, both.attacks) == (["lidfl 2", "lidfl 3"], ["gauss random", "gauss worst"])
    assert both.grid.cell("lidfl 3", "gauss worst").mean == pytest.approx(0.3)
    assert both.of("lidfl 2", "gauss random") == [runs[0]]


def test_a_chapter_knows_who_wins_and_what_is_left_at_worst() -> None:
    (scene,) = scenes(SWEEP)
    assert [scene.best_method(attack) for attack in scene.attacks] == ["fedavg", "lidfl"]
    accuracy, attack = scene.worst_case("fedavg")
    assert accuracy == pytest.approx(0.3)
    assert attack == "lie"
