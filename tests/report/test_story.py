"""What stands on a page: of a run, finished or not, and of a sweep."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from lidfl.report.figures.base import Figure
from lidfl.report.page import TableSection
from lidfl.report.story import compose, sweep_page
from tests.report.by_hand import FIVE, GOOD_LINE, played, put_run


def test_an_unfinished_run_gets_its_report_and_is_called_unfinished(tmp_path: Path) -> None:
    run = put_run(tmp_path / "run", GOOD_LINE[:3])
    page = compose([run])
    assert page.notices == [
        "This run is unfinished: 3 of 5 rounds are recorded. "
        f"Go on with: lidfl run --config {run}/experiment.toml --resume"
    ]
    assert [figure.name for figure in page.figures] == ["accuracy", "loss", "lineage", "votes", "margin", "time"]
    assert "1" in {fact.value for fact in page.facts if "margin" in fact.what}


def test_a_single_model_that_diverged_says_so_and_has_no_lineage(tmp_path: Path) -> None:
    own = FIVE.with_settings(method="fedavg", list_size=1, attack="gauss")
    bare: dict[str, Any] = {"born": (), "honest": {}, "votes": {0: 0}, "loss": {}, "removed": (), "margin": None}
    records = [replace(record, **bare) for record in GOOD_LINE[:2]]
    summary = {"test_accuracy": 0.1, "deployed_accuracy": 0.1, "diverged_at": 2}
    page = compose([put_run(tmp_path / "run", records, own, summary)])
    assert page.notices == [
        "The model diverged: after round 2 no client could train it to finite numbers. "
        "The run stopped there and keeps its accuracy for the 3 rounds left.",
        "fedavg keeps one model and holds no vote, so there are no votes, no validation losses and no lineage "
        "to draw.",
    ]
    assert [figure.name for figure in page.figures] == ["time"]


def test_of_too_many_methods_the_best_are_drawn_and_the_table_has_all() -> None:
    runs = [played("lidfl", 1, rate, learning_rate=rate) for rate in (number / 100 for number in range(1, 31))]
    page = sweep_page("grid", runs)
    assert [key.label for key in page.methods] == [f"lidfl {number / 100}" for number in range(17, 31)]
    curves, _, table = page.blocks
    assert isinstance(curves, Figure)
    assert isinstance(table, TableSection)
    assert "Only the 14 best of 30 methods are drawn; the table has them all." in curves.caption
    assert len(table.grid.rows) == 30


def test_runs_that_were_tested_at_their_end_alone_have_no_curves_and_one_sentence_says_so() -> None:
    once = [played(method, 1, 0.5, curve=[(10, 0.5)]) for method in ("lidfl", "fedavg")]
    page = sweep_page("once", once)
    assert [figure.name for figure in page.figures] == ["heatmap"]
    assert page.notices == ["The runs were tested at their end alone, so there is no accuracy over rounds to draw."]
    mixed = sweep_page("mixed", [*once, played("lidfl", 1, 0.5, byzantine_fraction=0.8)])
    assert [figure.name for figure in mixed.figures] == ["breakdown", "heatmap-1", "curves-2", "heatmap-2"]
    title = mixed.scenes[0]
    assert mixed.notices == [
        f"The runs of {title} were tested at their end alone, so there is no accuracy over rounds to draw."
    ]


def test_a_folder_of_runs_counts_what_is_unfinished(tmp_path: Path) -> None:
    summary = {"test_accuracy": 0.7, "deployed_accuracy": 0.8}
    put_run(tmp_path / "runs" / "a", GOOD_LINE, summary=summary)
    put_run(tmp_path / "runs" / "b", GOOD_LINE[:2])
    page = compose([tmp_path / "runs"])
    assert page.notices == ["1 run without a result yet: left out."]
    assert [figure.name for figure in page.figures] == ["curves", "heatmap", "lineage-1"]


def test_the_breakdown_curve_is_the_first_figure_of_a_sweep_over_the_fraction() -> None:
    runs = [played("lidfl", 1, 0.5, byzantine_fraction=fraction) for fraction in (0.2, 0.6)]
    assert sweep_page("fractions", runs).figures[0].name == "breakdown"
    assert "breakdown" not in [figure.name for figure in sweep_page("one", runs[:1]).figures]


def test_what_a_run_reached_and_cost_stands_at_its_top(tmp_path: Path) -> None:
    costs = {
        "gradient_steps": 50,
        "bytes_down": 2_000_000,
        "bytes_up": 500_000,
        "ballots": 25,
        "deployment_steps": 10,
    }
    summary = {"test_accuracy": 0.7, "deployed_accuracy": 0.8, "deployed_worst": 0.6, **costs}
    page = compose([put_run(tmp_path / "run", GOOD_LINE, summary=summary)])
    facts = [(fact.value, fact.what) for fact in page.facts]
    assert facts[:3] == [
        ("0.800", "accuracy that honest clients deploy"),
        ("0.600", "deployed by the worst of them"),
        ("0.700", "best model of the list, the paper's measure"),
    ]
    assert facts[-3:] == [
        ("60", "gradient steps of all clients"),
        ("2.5 MB", "models and updates sent"),
        ("25", "ballots"),
    ]


def test_where_classes_are_unequal_a_notice_says_what_accuracy_hides(tmp_path: Path) -> None:
    recalls = {"deployed_balanced_accuracy": 0.6, "deployed_lowest_recall": 0.2}
    shares = {"classes": 2, "smallest_class": 0.01, "largest_class": 0.99}
    summary = {"test_accuracy": 0.7, "deployed_accuracy": 0.8, **recalls, **shares}
    page = compose([put_run(tmp_path / "run", GOOD_LINE, summary=summary)])
    assert page.notices[0].startswith(
        "Classes are unequal, 1 to 99 % of the test images each: balanced accuracy 0.600"
    )


def test_settings_read_as_people_say_them() -> None:
    settings = sweep_page("a sweep", [played("lidfl", 1, 0.5)]).settings
    assert (settings["voters"], settings["workers"]) == ("all", "as many as needed")
    assert settings["assumed_byzantine_fraction"] == "what it is"
