"""Figures draw what the records hold, and captions count it."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from lidfl.protocol import Birth
from lidfl.report.figures.accuracy import accuracy_figure
from lidfl.report.figures.base import accuracy_top, every, log_ticks
from lidfl.report.figures.breakdown import LONGEST_LINE, breakdown_figure, breakdown_rows, in_lines, labels
from lidfl.report.figures.clients import deployed_figure, partition_figure
from lidfl.report.figures.curves import curves_figure
from lidfl.report.figures.heat_map import heat_map_figure
from lidfl.report.figures.lineage import Excerpt, lineage_caption, lineage_figure
from lidfl.report.figures.loss import loss_figure, lowest_losses
from lidfl.report.figures.margin import margin_figure, smallest_margin, told_margins
from lidfl.report.figures.methods import method_styles
from lidfl.report.figures.phases import phases_figure, seconds_by_phase
from lidfl.report.figures.rejected import rejected_rows
from lidfl.report.figures.spread import spread_figure, spread_rows
from lidfl.report.figures.votes import votes_figure
from lidfl.report.lineage import Life, Lineage, Origin, trace
from lidfl.report.scenes import scenes
from lidfl.report.words import ordinal
from lidfl.runs.clients import ClientTold
from tests.report.by_hand import FIVE, FIVE_ROUNDS, GOOD_LINE, SWEEP, drawn, played, run_of

# What all figures share


def test_thinning_keeps_the_last_and_says_its_step() -> None:
    assert every(list(range(10)), 10) == (list(range(10)), 1)
    assert every(list(range(10)), 4) == ([0, 3, 6, 9], 3)
    assert every(list(range(11)), 4) == ([1, 4, 7, 10], 3)
    assert every([], 4) == ([], 1)


def test_what_is_left_out_is_said() -> None:
    many = [replace(record, round_index=number) for number, record in enumerate(FIVE_ROUNDS[:1] * 400)]
    caption = drawn(loss_figure(run_of(many))).caption
    assert caption.endswith(" Every 3rd round is drawn, counted back from the last.")
    places = [ordinal(number) for number in (2, 3, 11, 12, 21, 22, 101)]
    assert places == ["2nd", "3rd", "11th", "12th", "21st", "22nd", "101st"]


def test_an_axis_of_accuracy_ends_at_a_full_tenth() -> None:
    tops = [accuracy_top(values) for values in ([0.017], [0.58, 0.3], [0.6], [0.99], [0.0])]
    assert tops == [0.1, 0.6, 0.7, 1.0, 0.1]


# A run


def test_accuracy_and_loss_in_words() -> None:
    assert drawn(accuracy_figure(run_of())).caption == (
        "The best model of the list rose from 0.400 to 0.700 between rounds 3 and 5. "
        "What honest clients deploy ended at 0.800. A dot is a model of the list, by its origin."
    )
    assert lowest_losses(GOOD_LINE) == [(1, 1.0), (2, 1.0), (3, 1.4), (4, 1.4), (5, 1.6)]
    assert drawn(loss_figure(run_of())).caption == (
        "The lowest validation loss in the list, a mean over all clients, rose from 1.000 to 1.600."
    )


def test_a_list_that_was_never_tested_has_no_figure_of_accuracy() -> None:
    assert accuracy_figure(run_of(GOOD_LINE[:2])) is None
    single = drawn(accuracy_figure(run_of(GOOD_LINE[:3])))
    assert single.caption.startswith("The best model of the list was tested once, in round 3, and reached 0.400.")


def test_votes_in_words() -> None:
    """Of 25 first choices 15 went to model 2, 10 to 0, 4 and 6; those voted out had 0, 0, 1, 0 and 0."""
    assert drawn(votes_figure(run_of())).caption == (
        "3 of 5 voters are attackers. First choices went 40\u00a0% to models that no attacker had touched and "
        "60\u00a0% to models with an attacker's update. A model that was voted out had 0.2 votes on average, "
        "1 at most. A bar is a round, a piece of it a candidate."
    )


def test_a_bar_of_votes_is_cut_into_the_candidates_of_its_round() -> None:
    rows = drawn(votes_figure(run_of())).panels[0].chart.to_dict()["data"]["values"]
    third = [row for row in rows if row["number"] == 3]
    assert [(row["model"], row["from"], row["to"], row["fate"], row["first"]) for row in third] == [
        (0, 0, 1, "voted out", True),
        (4, 1, 2, "stays", False),
        (2, 2, 5, "stays", True),
    ]


def test_the_closest_vote_is_named() -> None:
    assert smallest_margin(told_margins(GOOD_LINE)) == (3, 1)
    assert drawn(margin_figure(run_of())).caption == (
        "The closest vote was in round 3: 1 more colluding ballot would have removed the honest favourite."
    )
    assert margin_figure(run_of([replace(GOOD_LINE[0], margin=None)])) is None


def test_time_in_words() -> None:
    run = run_of()
    assert seconds_by_phase(run) == pytest.approx(
        {"evaluation": 1.5, "training": 0.5, "voting": 0.25, "protocol": 0.25}
    )
    assert phases_figure(run).caption == "5 rounds took 2.5 s, 500.0 ms each; 60\u00a0% of it went into evaluation."


# The family tree


def test_the_lineage_in_words() -> None:
    assert lineage_caption(trace(GOOD_LINE, 2)) == (
        "2 of 5 candidates were poisoned, and 1 of them was voted out in the round of their birth; "
        "the others stayed for 5 rounds in the median. "
        "After every one of 5 rounds the list held a model that no attacker had ever touched. "
        "The bold line leads to the last list's best model, 6, in 2 steps, none of them by an attacker. "
        "A line is a model's life in the list, a dot one that was voted out at birth."
    )
    assert "in 1 step, 1 of them by an attacker" in lineage_caption(trace(FIVE_ROUNDS, 2))


def long_lineage(births: int) -> Lineage:
    """One model that stays, and every round one that lives for its id modulo 7 rounds."""
    lives = {0: Life(Birth(0, (), ()), Origin.CLEAN, 0, None, 1.0)}
    for model in range(1, births + 1):
        lives[model] = Life(Birth(model, (0,), (9,)), Origin.POISONED, model, model + model % 7, 2.0)
    return Lineage(lives, births + 7)


def test_a_long_lineage_is_thinned_to_the_longest_lives_and_says_so() -> None:
    tree = long_lineage(1500)
    excerpt = Excerpt.of(tree)
    assert (excerpt.shortest, excerpt.step) == (5, 1)
    lives_of_six = sum(model % 7 == 6 for model in range(1, 1501))
    assert len(excerpt.lives) == 1 + lives_of_six
    assert len(excerpt.rejected) == sum(model % 7 == 0 for model in range(1, 1501))
    hidden = 1500 - lives_of_six - len(excerpt.rejected)
    assert (
        f"({hidden:,} models off the bold line that stayed for at most 5 rounds are left out)"
        in lineage_caption(tree)
    )


def test_a_small_lineage_is_drawn_in_full() -> None:
    excerpt = Excerpt.of(trace(GOOD_LINE, 2))
    assert [life.model for life in excerpt.lives] == [0, 1, 2, 4, 6]
    assert [life.model for life in excerpt.rejected] == [3, 5]
    assert (excerpt.shortest, excerpt.step) == (0, 1)


def test_runaway_losses_are_compressed_and_infinite_ones_are_at_the_edge() -> None:
    tree = long_lineage(20)
    tree.lives[6] = replace(tree.lives[6], loss=4000.0)
    tree.lives[13] = replace(tree.lives[13], loss=None)
    excerpt = Excerpt.of(tree)
    assert excerpt.span == pytest.approx((0.93, 2.5, 4280.0))
    assert excerpt.height(tree.lives[13]) == excerpt.span[-1]
    assert log_ticks(excerpt.span) == [1, 1.2, 1.5, 2, 2.5, 10, 100, 1000]
    assert "Above the dotted line, at 2.5, the scale is compressed." in lineage_caption(tree)
    assert Excerpt.of(trace(GOOD_LINE, 2)).bend is None


def test_a_model_of_several_parents_names_them_and_steps_from_the_best() -> None:
    last = replace(GOOD_LINE[4], born=(Birth(6, (2, 4), (1, 3)),), loss={2: 3.0, 4: 1.4, 6: 1.6})
    tree = drawn(lineage_figure(run_of([*GOOD_LINE[:4], last]))).panels[0].chart.to_dict()
    rows = [row for layer in tree["layer"] for row in layer["data"]["values"] if row.get("model") == 6]
    assert {(row["parents"], row["who"]) for row in rows if "parents" in row} == {("2, 4", "2 clients")}
    assert [(row["loss"], row["to"]) for row in rows if "to" in row] == [(1.4, 1.6)]


def test_the_strip_counts_who_was_voted_out_at_birth() -> None:
    rows = rejected_rows(trace(GOOD_LINE, 2), width=2)
    told = [(row["rounds"], row["count"], row["origin"].name, row["from"], row["to"]) for row in rows]
    assert told == [("1 to 2", 1, "TAINTED", 0, 1), ("3 to 4", 1, "POISONED", 0, 1)]


def test_a_single_model_has_no_list_to_draw() -> None:
    run = run_of(experiment=FIVE.with_settings(method="fedavg", list_size=1))
    assert [make(run) for make in (loss_figure, lineage_figure, votes_figure)] == [None, None, None]


# A sweep


def test_a_model_that_diverged_is_named() -> None:
    run = played("fedavg", 1, 0.1, curve=[(2, 0.3)])
    stopped = replace(run, summary={"deployed_accuracy": 0.1, "test_accuracy": 0.1, "diverged_at": 4})
    text = curves_figure(scenes([stopped])[0], ["fedavg"]).caption
    assert "The model diverged in 1 run of fedavg; its accuracy is kept for the rounds left." in text


def test_a_dot_ends_the_curve_of_a_shorter_run_and_is_all_of_one_tested_once() -> None:
    shorter = played("fedavg", 1, 0.2, curve=[(4, 0.2)], attack="lie", rounds=4)
    (scene,) = scenes([*SWEEP[:2], shorter])
    figure = curves_figure(scene, scene.methods)
    drawing = figure.panels[0].chart.to_dict()
    (layer,) = [layer for layer in drawing["layer"] if {"filter": "datum.ends"} in layer["transform"]]
    rows = drawing["data"]["values"]
    assert layer["mark"] == {"type": "circle", "size": 45, "opacity": 1}
    assert [(row["method"], row["round"], row["mean"]) for row in rows if row["ends"]] == [("fedavg", 4, 0.2)]
    assert "A dot is the end of runs with fewer rounds than others." in figure.caption
    (scene,) = scenes([*SWEEP[:2], played("fedavg", 1, 0.2, curve=[(10, 0.2)], attack="lie")])
    rows = curves_figure(scene, scene.methods).panels[0].chart.to_dict()["data"]["values"]
    assert [(row["method"], row["round"]) for row in rows if row["ends"]] == [("fedavg", 10)]


def test_a_sweep_in_words() -> None:
    (scene,) = scenes(SWEEP)
    assert curves_figure(scene, scene.methods).caption == (
        "Lines are means over 1 to 2 runs, bands one standard deviation to each side. "
        "Highest at the end: fedavg under 1 of 2 attacks and lidfl under 1 of 2 attacks."
    )
    assert heat_map_figure(scene, scene.methods).caption == (
        "Test accuracy of what honest clients deploy at the end. The worst attack leaves "
        "lidfl 0.500 (gauss) and fedavg 0.300 (lie)."
    )


def test_a_band_is_one_sample_deviation_wide_and_one_seed_has_none() -> None:
    (scene,) = scenes(SWEEP)
    gauss, lie = curves_figure(scene, scene.methods).panels
    (last,) = [row for row in values(lie.chart) if (row["method"], row["round"]) == ("lidfl", 10)]
    assert (last["low"], last["mean"], last["high"], last["deviation"]) == (0.5586, 0.7, 0.8414, "0.141")
    (alone,) = [row for row in values(gauss.chart) if (row["method"], row["round"]) == ("lidfl", 10)]
    assert (alone["low"], alone["mean"], alone["high"], alone["deviation"]) == (0.5, 0.5, 0.5, "–")
    cells = values(heat_map_figure(scene, scene.methods).panels[0].chart)
    told = {(row["method"], row["attack"]): (row["deviation"], row["runs"]) for row in cells}
    assert told[("lidfl", "lie")] == ("0.141", 2)
    assert told[("lidfl", "gauss")] == ("–", 1)


FRACTIONS = [
    played(method, 1, accuracy, attack=attack, byzantine_fraction=fraction)
    for fraction, found in (
        (0.2, {("lidfl", "lie"): 0.8, ("lidfl", "gauss"): 0.7, ("fedavg", "lie"): 0.75, ("oracle", "none"): 0.9}),
        (0.6, {("lidfl", "lie"): 0.5, ("lidfl", "gauss"): 0.6, ("fedavg", "lie"): 0.0, ("oracle", "none"): 0.85}),
    )
    for (method, attack), accuracy in found.items()
]


def test_the_breakdown_curve_is_what_the_worst_attack_leaves_at_each_fraction() -> None:
    chapters = scenes(FRACTIONS)
    told = [
        (r["method"], r["fraction"], r["attack"], r["mean"]) for r in breakdown_rows(chapters, ["lidfl", "fedavg"])
    ]
    assert told == [
        ("lidfl", 0.2, "gauss", 0.7),
        ("lidfl", 0.6, "lie", 0.5),
        ("fedavg", 0.2, "lie", 0.75),
        ("fedavg", 0.6, "lie", 0.0),
    ]
    figure = drawn(breakdown_figure(chapters, ["lidfl", "fedavg", "oracle"]))
    assert figure.caption.endswith(
        "Best of those that anyone can run: fedavg at 20\u00a0% (0.750) and lidfl at 60\u00a0% (0.500)."
    )
    assert breakdown_figure(scenes(FRACTIONS[:4]), ["lidfl"]) is None, "one fraction is no curve"


def test_names_at_the_ends_of_lines_do_not_cover_each_other_and_stay_on_the_chart() -> None:
    rows = [
        {"method": name, "fraction": 0.8, "mean": mean} for name, mean in (("a", 0.99), ("b", 0.99), ("c", 0.0))
    ]
    heights = {row["method"]: row["at"] for row in labels(rows, 1.0)}
    ordered = sorted(heights.values())
    assert ordered[0] == 0.0
    assert max(ordered) <= 1.0
    assert min(high - low for low, high in pairwise(ordered)) >= 0.055 - 1e-9


def test_a_long_name_is_cut_into_lines_that_a_phone_has_room_for() -> None:
    assert in_lines("fedavg", 3) == ["fedavg"]
    assert in_lines("lidfl-ranked coordinated", 2) == ["lidfl-ranked", "coordinated"]
    assert in_lines("lidfl-ranked coordinated", 1) == ["lidfl-ranked…"]
    assert in_lines("lidfl+rknn+average nnm|krum", 3) == ["lidfl+rknn+", "average nnm|", "krum"]
    assert in_lines("a" * 30, 3) == ["a" * (LONGEST_LINE - 1) + "…"]


def test_names_of_several_lines_do_not_cover_each_other() -> None:
    names = ["lidfl-ranked coordinated", "lidfl-ranked random", "oracle", "lidfl-ranked worst"]
    placed = labels([{"method": name, "fraction": 0.8, "mean": 0.6} for name in names], 0.7)
    assert [row["name"].count("\n") for row in placed] == [1, 1, 0, 1]
    blocks = [(row["at"], row["at"] - 0.045 * 0.7 * row["name"].count("\n")) for row in placed]
    assert blocks[-1][0] <= 0.7 + 1e-9
    assert all(upper[1] - lower[0] >= 0.055 * 0.7 - 1e-9 for lower, upper in pairwise(blocks))


def test_no_two_methods_share_colour_and_dash_and_the_first_seven_share_neither() -> None:
    keys = list(method_styles([str(number) for number in range(14)]).values())
    assert len({(key.colour, key.shape) for key in keys}) == 14
    assert len({key.colour for key in keys[:7]}) == len({key.shape for key in keys[:7]}) == 7


def test_the_spread_goes_from_the_worst_honest_client_to_all() -> None:
    worst = {"deployed_worst": 0.2, "deployed_worst_decile": 0.3}
    runs = [replace(run, summary=run.summary | worst) for run in SWEEP[:2]]
    (scene,) = scenes([*runs, SWEEP[2]])
    told = [(row["method"], row["what"], row["accuracy"]) for row in spread_rows(scene, scene.methods)]
    assert told == [("lidfl", "worst client", 0.2), ("lidfl", "worst tenth", 0.3), ("lidfl", "all", 0.7)]
    assert spread_figure(scenes(SWEEP)[0], ["lidfl"]) is None, "earlier versions did not tell"


def test_clients_one_by_one_in_words() -> None:
    clients = [
        ClientTold(0, (3, 0), False, 0.5),
        ClientTold(1, (1, 4), True, None),
        ClientTold(2, (2, 2), False, 0.9),
    ]
    assert drawn(deployed_figure(clients)).caption == (
        "Each bar is one of 2 honest clients, by the test accuracy of what it deploys: from 0.500 (client 0) to "
        "0.900; the line is their mean, 0.700."
    )
    figure = drawn(partition_figure(clients))
    assert figure.caption.endswith("a client holds: 3 to 5 images of 1 to 2 classes each.")
    rows = values(figure.panels[0].chart)
    assert [(r["client"], r["label"], r["images"], r["who"]) for r in rows] == [
        (0, 0, 3, "honest"),
        (2, 0, 2, "honest"),
        (2, 1, 2, "honest"),
        (1, 0, 1, "Byzantine"),
        (1, 1, 4, "Byzantine"),
    ]
    assert deployed_figure([]) is None
    assert partition_figure([]) is None


def values(chart: object) -> list[dict[str, object]]:
    """The rows that a chart draws, as a page holds them."""
    found: list[dict[str, object]] = json.loads(chart.to_json())["data"]["values"]  # type: ignore[attr-defined]
    return found
