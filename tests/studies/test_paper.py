"""The paper's experiments are all there, with the paper's numbers, and ours are set beside them."""

import shutil
from pathlib import Path

import pytest

from lidfl import Experiment, LidflError
from lidfl.runs.directory import RunDirectory
from lidfl.studies.paper import compare, names, paper_numbers, planned
from lidfl.studies.store import Shelf, milestones
from tests.records import finished_run

ATTACKS = {"empire", "gauss", "label_flip", "lie", "omniscient", "sign_flip"}


@pytest.mark.parametrize("name", names())
def test_every_experiment_of_the_paper_can_be_planned_and_covers_its_table(name: str, tmp_path: Path) -> None:
    sweep = planned(name, seeds=1, out=tmp_path)
    runs = [(e, {sweep.value: 0.5}) for e in sweep.runs]
    from lidfl.studies.tables import tabulate

    cells = tabulate(runs, sweep.rows, sweep.columns, sweep.value).cells
    assert paper_numbers(name).keys() <= cells.keys()
    assert {len(cell.values) for cell in cells.values()} == {1}


@pytest.mark.parametrize(
    ("name", "row", "column", "expected"),
    [
        ("femnist-lr-0.6", "lidfl", "gauss", (0.55, 0.03)),
        ("femnist-lr-0.4", "norm", "lie", (0.58, 0.01)),
        ("femnist-cnn-0.8", "lidfl", "lie", (0.58, 0.26)),
        ("cifar10-cnn-0.6", "norm", "gauss", (0.63, 0.01)),
        ("voting-cnn", "random", "lie", (0.60, None)),
        ("list-size-lr", "3", "sign_flip worst", (0.55, 0.00)),
        ("aggregators-cnn", "lidfl+meb", "lie", (0.63, 0.29)),
    ],
)
def test_the_papers_numbers_are_the_papers(
    name: str, row: str, column: str, expected: tuple[float, float | None]
) -> None:
    assert paper_numbers(name)[row, column] == expected


def test_a_plan_can_be_cut_down() -> None:
    whole = planned("femnist-lr-0.6")
    assert len(whole.runs) == 5 * 6 * 5
    assert {e.rounds for e in whole.runs} == {1500}
    assert {e.attack for e in whole.runs} == ATTACKS
    part = planned("femnist-lr-0.6", scale=0.2, seeds=2, groups=["lidfl"])
    assert len(part.runs) == 6 * 2
    assert {(e.rounds, e.method) for e in part.runs} == {(300, "lidfl")}
    column = planned("list-size-lr", seeds=1, columns=["sign_flip worst"])
    assert {(e.attack, e.vote_attack) for e in column.runs} == {("sign_flip", "worst")}
    assert [e.list_size for e in column.runs] == [2, 3, 4, 5]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            dict(name="femnist-lr-0.5"),
            "unknown experiment 'femnist-lr-0.5'; choose from adversary-absence, ",
        ),
        (dict(name="femnist-lr-0.6", scale=0.0), "scale must be positive"),
        (dict(name="femnist-lr-0.6", groups=["lid"]), "has no group 'lid'; choose from baselines, lidfl"),
        (dict(name="femnist-lr-0.6", columns=["LIE"]), "has no column 'LIE'; choose from empire, gauss, "),
    ],
)
def test_slips_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(LidflError, match=message):
        planned(**options)  # type: ignore[arg-type]


def test_kept_results_outlive_their_runs_and_are_not_run_again(tmp_path: Path) -> None:
    sweep = planned("femnist-lr-0.6", seeds=2, groups=["lidfl"], out=tmp_path / "runs")
    for experiment in sweep.runs[:3]:
        finished_run(experiment, 0.6)
    store = Shelf(tmp_path / "results")
    store.keep(sweep)
    shutil.rmtree(tmp_path / "runs")
    again = Shelf(tmp_path / "results")
    assert again.missing(sweep) == list(sweep.runs[3:])
    assert [summary["test_accuracy"] for _, summary in again.results(sweep)] == [0.6] * 3
    curve = next(iter(again.of(sweep.name).values())).curve
    assert len(curve) <= 60
    assert curve[-1] == (150, 0.149)


def test_what_two_experiments_share_is_run_once(tmp_path: Path) -> None:
    first = planned("femnist-lr-0.6", seeds=1, groups=["lidfl"], out=tmp_path / "first")
    for experiment in first.runs:
        finished_run(experiment, 0.6)
    Shelf(tmp_path / "results").keep(first)
    second = planned("voting-lr", seeds=1, out=tmp_path / "second")
    store = Shelf(tmp_path / "results")
    missing = store.missing(second)
    assert {e.vote_attack for e in missing} == {"random"}
    store.keep(second)
    kept = Shelf(tmp_path / "results").results(second)
    assert [e.vote_attack for e, _ in kept] == ["worst"] * 6


def test_ours_is_set_beside_the_papers_with_the_difference(tmp_path: Path) -> None:
    sweep = planned("femnist-lr-0.6", seeds=2, groups=["lidfl"], out=tmp_path)
    chosen: list[Experiment] = [e for e in sweep.runs if e.attack == "lie"]
    for experiment, accuracy in zip(chosen, (0.60, 0.62), strict=True):
        finished_run(experiment, accuracy)
    store = Shelf(tmp_path / "results")
    store.keep(sweep)
    _, cells = compare(sweep, store.results(sweep))
    (cell,) = [cell for cell in cells if cell.ours.values]
    assert (cell.paper, cell.paper_deviation) == (0.57, 0.03)
    assert cell.ours.mean == pytest.approx(0.61)
    assert cell.difference == pytest.approx(0.04)


def test_milestones_say_after_how_many_rounds_and_seconds_an_accuracy_was_reached(tmp_path: Path) -> None:
    experiment = planned("femnist-lr-0.6", seeds=1, out=tmp_path).runs[0]
    finished_run(experiment, 0.5)  # the accuracy is r/1000 in round r, half a second each
    assert milestones(RunDirectory(experiment.out), (0.1, 0.149, 0.15)) == {
        "0.1": (101, 50.5),
        "0.149": (150, 75.0),
    }
