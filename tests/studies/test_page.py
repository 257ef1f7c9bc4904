"""The page beside the paper: made from kept results alone, and every large difference is explained."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from lidfl.studies import page as pages
from lidfl.studies.page import in_order, page, reason
from lidfl.studies.paper import Compared, names_of_the_paper, planned
from lidfl.studies.store import Shelf
from lidfl.studies.tables import Cell
from tests.records import finished_run

RESULTS = Path(__file__).parents[2] / "results"
PLANNED = cache(planned)


@pytest.fixture(autouse=True)
def planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a page plans does not depend on what is kept: for all of these tests once is enough."""
    monkeypatch.setattr(pages, "planned", PLANNED)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    sweep = planned("femnist-lr-0.6", seeds=2, groups=["lidfl"], out=tmp_path / "runs")
    for experiment in sweep.runs:
        finished_run(experiment, 0.7 if experiment.attack == "lie" else 0.56)
    Shelf(tmp_path / "results").keep(sweep)
    return tmp_path / "results"


def section(text: str, name: str) -> str:
    return text.split(f"## {name}\n")[1].split("\n## ")[0]


def test_a_cell_shows_ours_the_papers_and_the_difference(results: Path) -> None:
    text = section(page(results), "femnist-lr-0.6")
    assert "| lidfl | 0.560 ± 0.000 (0.57) -0.01 |" in text
    assert "- lidfl: 1500 rounds, seeds 2024, 2025, commit None" in text
    assert "- not run yet: cwm, fedavg, gm, norm" in text


def test_runs_shorter_than_the_papers_are_said_to_be(tmp_path: Path) -> None:
    sweep = planned("femnist-cnn-0.6", scale=0.02, seeds=1, groups=["lidfl"], out=tmp_path / "runs")
    for experiment in sweep.runs:
        finished_run(experiment, 0.7)
    Shelf(tmp_path / "results").keep(sweep)
    text = section(page(tmp_path / "results"), "femnist-cnn-0.6")
    assert "- lidfl: **30** of the paper's 1500 rounds, seeds 2024" in text


def test_of_shorter_and_longer_runs_of_a_cell_the_longer_counts(tmp_path: Path) -> None:
    for scale, accuracy in ((0.02, 0.3), (0.1, 0.7), (0.04, 0.5)):
        columns = [] if scale == 0.02 else ["gauss"]
        sweep = planned("femnist-cnn-0.6", scale=scale, seeds=1, groups=["lidfl"], columns=columns, out=tmp_path)
        sweep = replace(sweep, runs=tuple(replace(e, out=f"{e.out}-{scale}") for e in sweep.runs))
        for experiment in sweep.runs:
            finished_run(experiment, accuracy)
        Shelf(tmp_path / "results").keep(sweep)
    text = section(page(tmp_path / "results"), "femnist-cnn-0.6")
    assert "- lidfl: **30 (gauss: 150)** of the paper's 1500 rounds, seeds 2024" in text
    assert "| lidfl | 0.300 (0.72) **-0.42** | 0.700 (0.71) -0.01 | 0.300" in text


def test_columns_with_other_seeds_than_the_rest_are_named(tmp_path: Path) -> None:
    sweep = planned("femnist-lr-0.6", seeds=3, groups=["lidfl"], out=tmp_path / "runs")
    for experiment in sweep.runs:
        if experiment.seed == 2024 or experiment.attack == "lie":
            finished_run(experiment, 0.6)
    Shelf(tmp_path / "results").keep(sweep)
    text = section(page(tmp_path / "results"), "femnist-lr-0.6")
    assert "- lidfl: 1500 rounds, seeds 2024 (lie: 2024, 2025, 2026), commit" in text


def test_cells_that_have_not_been_run_are_dashes_beside_the_papers(tmp_path: Path) -> None:
    sweep = planned("femnist-cnn-0.6", scale=0.02, seeds=1, groups=["lidfl"], out=tmp_path / "runs")
    (gauss,) = [experiment for experiment in sweep.runs if experiment.attack == "gauss"]
    finished_run(gauss, 0.7)
    Shelf(tmp_path / "results").keep(sweep)
    lines = section(page(tmp_path / "results"), "femnist-cnn-0.6").splitlines()
    assert "| method | empire | gauss | label_flip | lie | omniscient | sign_flip |" in lines
    (row,) = [line for line in lines if line.startswith("| lidfl |")]
    assert row.startswith("| lidfl | – (0.72) | 0.700 (0.71) -0.01 | – (0.72) |")
    assert any(line.startswith("| cwm | – (") for line in lines)


def test_a_large_difference_is_bold_and_explained(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "read_reasons", list)
    text = section(page(results), "femnist-lr-0.6")
    assert "0.700 ± 0.000 (0.57) **+0.13**" in text
    assert "- lidfl/lie: Not explained yet." in text
    why = [dict(experiment="*", row="lidfl", column="lie", why="Because.")]
    monkeypatch.setattr(pages, "read_reasons", lambda: why)
    assert "- lidfl/lie: Because." in section(page(results), "femnist-lr-0.6")


def test_the_first_reason_that_fits_is_given() -> None:
    cell = Compared("gm", "lie", 0.1, None, Cell((0.3,)))
    reasons = [
        dict(experiment="x", row="gm", column="lie", why="another table"),
        dict(experiment="*", row="gm", column="*", why="its row"),
        dict(experiment="*", row="*", column="*", why="anything"),
    ]
    assert reason("y", cell, reasons) == "its row"
    assert reason("x", cell, reasons) == "another table"
    assert reason("y", cell, []) is None


def test_order_is_counted_over_pairs_that_the_paper_sets_apart() -> None:
    def cell(row: str, column: str, paper: float | None, *ours: float) -> Compared:
        return Compared(row, column, paper, None, Cell(ours))

    cells = [
        cell("a", "lie", 0.9, 0.5),
        cell("b", "lie", 0.6, 0.4),
        cell("c", "lie", 0.58, 0.6),
        cell("d", "lie", 0.1),
        cell("e", "lie", None, 0.1),
        cell("a", "gauss", 0.2, 0.9),
    ]
    assert in_order(cells) == [True, False]


def test_the_overview_counts_cells_rounds_seeds_near_ones_and_order(results: Path) -> None:
    lines = section(page(results), "In short").splitlines()
    (ours,) = [line for line in lines if "[femnist-lr-0.6]" in line]
    assert ours == "| [femnist-lr-0.6](#femnist-lr-06) | 6 of 30 | 1,500 of 1,500 | 2 | 5 of 6 | – |"
    (empty,) = [line for line in lines if "[list-size-cnn]" in line]
    assert empty.endswith("| 0 of 16 | – | – | – | – |")


def test_a_grid_of_settings_names_its_lowest_loss_and_that_of_the_papers_choice(tmp_path: Path) -> None:
    sweep = planned("hyperparameters-lr", scale=0.1, out=tmp_path / "runs")
    for experiment in sweep.runs:
        if experiment.momentum == 0.9 and experiment.batch_size == 32:
            finished_run(experiment, 0.5, validation_loss=10 * abs(experiment.learning_rate - 0.1) + 1)
    Shelf(tmp_path / "results").keep(sweep)
    lines = section(page(tmp_path / "results"), "hyperparameters-lr").splitlines()
    assert "- each number is the validation loss at learning_rate local_steps / momentum batch_size" in lines
    told = "- the lowest is 1.000, at 0.1 5 / 0.9 32; what the paper chose, 0.01 25 / 0.9 32, has 1.900"
    assert told in lines


def test_a_figure_that_is_there_is_shown(results: Path) -> None:
    assert "![" not in page(results, results)
    (results / "figures" / "femnist-lr-0.6").mkdir(parents=True)
    (results / "figures" / "femnist-lr-0.6" / "curves.svg").write_text("<svg/>")
    assert "(figures/femnist-lr-0.6/curves.svg)" in section(page(results, results), "femnist-lr-0.6")


def test_every_table_of_the_paper_has_its_section(results: Path) -> None:
    text = page(results)
    assert all(f"## {name}\n" in text for name in names_of_the_paper())
    assert "adversary" not in text


def test_the_committed_page_is_made_from_the_committed_results() -> None:
    committed = RESULTS.parent / "docs" / "reproduction.md"
    assert committed.read_text(encoding="utf-8") == page(RESULTS, committed.parent)
    assert "Not explained yet." not in page(RESULTS)
