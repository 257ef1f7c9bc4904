"""Reports say and draw what the records hold, and no more."""

import json
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lidfl import Experiment, LidflError
from lidfl.report import build, captions, figures, write_report
from lidfl.report.figures import Figure, accuracy_top, ticks
from lidfl.report.lineage import Life, Lineage, Origin, chosen, origin_of, trace
from lidfl.report.page import TableSection, paper, repeat_command, script_safe
from lidfl.report.read import Played, RunRecords, lowest_losses, mean_curve, scenes, smallest_margin
from lidfl.report.story import sweep_page
from lidfl.report.thinning import every
from lidfl.rundir import Born, RunDirectory, births
from lidfl.tables import as_csv, as_latex
from tests.command import lidfl


def line(number: int, model: int, parent: int, honest: bool, votes: dict[int, int], out: int, **more: Any) -> Any:
    """The record of a round in which one client trained; a model's loss is a tenth of its id, plus 1."""
    return {
        "round": number - 1,
        "model": model,
        "client": 1 if honest else 9,
        "parent": parent,
        "honest": honest,
        "votes": {str(candidate): count for candidate, count in votes.items()},
        "loss": {str(candidate): 1 + candidate / 10 for candidate in votes},
        "removed": [out],
        "rejected": {},
        "seconds": 0.5,
        "phases": {"training": 0.1, "evaluation": 0.3, "voting": 0.05, "protocol": 0.05},
    } | more


FIVE_ROUNDS = [
    line(1, 2, 0, False, {0: 2, 1: 0, 2: 3}, out=1, margin=3),
    line(2, 3, 2, True, {0: 2, 2: 3, 3: 0}, out=3, margin=None),
    line(3, 4, 0, True, {0: 1, 2: 3, 4: 1}, out=0, margin=1, accuracy={"2": 0.1, "4": 0.4}, deployed_accuracy=0.5),
    line(4, 5, 4, False, {2: 3, 4: 2, 5: 0}, out=5, margin=4),
    line(5, 6, 4, True, {2: 3, 4: 0, 6: 2}, out=4, margin=1, accuracy={"2": 0.1, "6": 0.7}, deployed_accuracy=0.8),
]
"""The initial models 0 and 1; 2 is poisoned and stays, 3 is its honest child, 5 is poisoned and voted out at birth;
the good line is 0, 4, 6. But model 2 has the lowest loss of the last list, unless told otherwise."""

GOOD_LINE = [
    record | {"loss": {model: 3.0 if model in ("2", "3", "5") else loss for model, loss in record["loss"].items()}}
    for record in FIVE_ROUNDS
]
"""The same with the poisoned models' losses high, as they are."""

FIVE = Experiment(rounds=5, num_clients=5, eval_every=3, learning_rate=0.1)


def put_run(place: Path, lines: Any, experiment: Experiment = FIVE, summary: dict[str, Any] | None = None) -> Path:
    """A run directory with these records."""
    place.mkdir(parents=True)
    (place / "experiment.toml").write_text(experiment.with_settings(out=str(place)).to_toml())
    (place / "rounds.jsonl").write_text("".join(json.dumps(record) + "\n" for record in lines))
    if summary:
        (place / "summary.json").write_text(json.dumps(summary))
    return place


def records(lines: Any = GOOD_LINE, experiment: Experiment = FIVE) -> RunRecords:
    return RunRecords(RunDirectory("somewhere"), experiment, lines, None)


# Records


def test_births_reads_both_forms_of_a_line() -> None:
    one = {"model": 7, "client": 3, "parent": 2, "honest": True}
    assert births(one) == [Born(7, (2,), (3,), True)]
    assert births(one | {"client": [3, 4], "parent": -1}) == [Born(7, (), (3, 4), True)]
    assert births({"round": 4}) == []
    mean = {"model": 8, "parents": [6, 7], "clients": [], "honest": None}
    trained = {"model": 7, "parents": [2], "clients": [3], "honest": False}
    assert births({"born": [trained, mean]}) == [Born(7, (2,), (3,), False), Born(8, (6, 7), (), None)]


def test_a_line_that_is_still_being_written_is_not_read(tmp_path: Path) -> None:
    run = put_run(tmp_path / "run", FIVE_ROUNDS)
    with (run / "rounds.jsonl").open("a") as file:
        file.write('{"round": 5, "mod')
    assert len(list(RunDirectory(run).lines())) == 5


def test_thinning_keeps_the_last_and_says_its_step() -> None:
    assert every(list(range(10)), 10) == (list(range(10)), 1)
    assert every(list(range(10)), 4) == ([0, 3, 6, 9], 3)
    assert every(list(range(11)), 4) == ([1, 4, 7, 10], 3)
    assert every([], 4) == ([], 1)


# Lineage


def test_the_lineage_of_five_rounds_by_hand() -> None:
    tree = trace(GOOD_LINE, 2)
    told = {life.model: (life.origin.name, life.born, life.gone) for life in tree.lives.values()}
    assert told == {
        0: ("CLEAN", 0, 3),
        1: ("CLEAN", 0, 1),
        2: ("POISONED", 1, None),
        3: ("TAINTED", 2, 2),
        4: ("CLEAN", 3, 5),
        5: ("POISONED", 4, 4),
        6: ("CLEAN", 5, None),
    }
    assert [life.model for life in tree.line] == [0, 4, 6]
    assert [tree.length(tree.lives[model]) for model in (0, 1, 2, 4, 5, 6)] == [2, 0, 5, 2, 0, 1]
    assert tree.rounds_with_clean() == 5


def test_the_line_leads_to_the_lowest_loss_of_the_last_list() -> None:
    assert [life.model for life in trace(FIVE_ROUNDS, 2).line] == [0, 2]


@pytest.mark.parametrize(
    ("honest", "parents", "expected"),
    [
        (False, [Origin.CLEAN], Origin.POISONED),
        (True, [Origin.CLEAN], Origin.CLEAN),
        (True, [Origin.POISONED], Origin.TAINTED),
        (True, [Origin.TAINTED], Origin.TAINTED),
        (None, [Origin.CLEAN, Origin.CLEAN], Origin.CLEAN),
        (None, [Origin.CLEAN, Origin.TAINTED], Origin.TAINTED),
        (None, [Origin.CLEAN, Origin.POISONED], Origin.POISONED),
    ],
)
def test_origin_follows_from_who_trained_and_on_what(
    honest: bool | None, parents: list[Origin], expected: Origin
) -> None:
    assert origin_of(honest, parents) is expected


def test_several_births_in_a_round_are_all_traced() -> None:
    born = [
        {"model": 1, "parents": [0], "clients": [9], "honest": False},
        {"model": 2, "parents": [0], "clients": [1], "honest": True},
        {"model": 3, "parents": [1, 2], "clients": [], "honest": None},
    ]
    loss = {"0": 3.0, "1": 9.0, "2": 2.0, "3": 1.0}
    one = {"round": 0, "born": born, "votes": dict.fromkeys(loss, 1), "loss": loss, "removed": [0, 1, 2]}
    tree = trace([one], 1)
    assert [life.origin.name for life in tree.lives.values()] == ["CLEAN", "POISONED", "CLEAN", "POISONED"]
    assert [life.model for life in tree.line] == [0, 2, 3]


def long_lineage(births: int) -> Lineage:
    """One model that stays, and every round one that lives for its id modulo 7 rounds."""
    lives = {0: Life(0, (), (), Origin.CLEAN, 0, None, 1.0)}
    for model in range(1, births + 1):
        lives[model] = Life(model, (0,), (9,), Origin.POISONED, model, model + model % 7, 2.0)
    return Lineage(lives, births + 7)


def test_a_long_lineage_is_thinned_to_the_longest_lives_and_says_so() -> None:
    tree = long_lineage(1500)
    drawn = chosen(tree)
    assert (drawn.shortest, drawn.step) == (5, 1)
    lives_of_six = sum(model % 7 == 6 for model in range(1, 1501))
    assert len(drawn.lives) == 1 + lives_of_six
    assert len(drawn.rejected) == sum(model % 7 == 0 for model in range(1, 1501))
    hidden = 1500 - lives_of_six - len(drawn.rejected)
    assert (
        f"({hidden:,} models off the bold line that stayed for at most 5 rounds are left out)"
        in captions.lineage(tree)
    )


def test_a_small_lineage_is_drawn_in_full() -> None:
    drawn = chosen(trace(GOOD_LINE, 2))
    assert [life.model for life in drawn.lives] == [0, 1, 2, 4, 6]
    assert [life.model for life in drawn.rejected] == [3, 5]
    assert (drawn.shortest, drawn.step) == (0, 1)


def test_runaway_losses_are_compressed_and_infinite_ones_are_at_the_edge() -> None:
    tree = long_lineage(20)
    tree.lives[6] = replace(tree.lives[6], loss=4000.0)
    tree.lives[13] = replace(tree.lives[13], loss=None)
    drawn = chosen(tree)
    assert drawn.span == pytest.approx((0.93, 2.5, 4280.0))
    assert drawn.height(tree.lives[13]) == drawn.span[-1]
    assert ticks(drawn.span) == [1, 1.2, 1.5, 2, 2.5, 10, 100, 1000]
    assert "Above the dotted line, at 2.5, the scale is compressed." in captions.lineage(tree)
    assert chosen(trace(GOOD_LINE, 2)).bend is None


# Captions


def test_an_axis_of_accuracy_ends_at_a_full_tenth() -> None:
    assert [accuracy_top(values) for values in ([0.017], [0.58, 0.3], [0.6], [0.99], [0.0])] == [
        0.1,
        0.6,
        0.7,
        1.0,
        0.1,
    ]


def test_the_lineage_in_words() -> None:
    assert captions.lineage(trace(GOOD_LINE, 2)) == (
        "2 of 5 candidates were poisoned, and 1 of them was voted out in the round of their birth; "
        "the others stayed for 5 rounds in the median. "
        "After every one of 5 rounds the list held a model that no attacker had ever touched. "
        "The bold line leads to the last list's best model, 6, in 2 steps, none of them by an attacker. "
        "A line is a model's life in the list, a dot one that was voted out at birth."
    )
    assert "in 1 step, 1 of them by an attacker" in captions.lineage(trace(FIVE_ROUNDS, 2))


def test_accuracy_and_loss_in_words() -> None:
    assert captions.accuracy(records()) == (
        "The best model of the list rose from 0.400 to 0.700 between rounds 3 and 5. "
        "What honest clients deploy ended at 0.800. A dot is a model of the list, by its origin."
    )
    assert lowest_losses(GOOD_LINE) == [(1, 1.0), (2, 1.0), (3, 1.4), (4, 1.4), (5, 1.6)]
    assert captions.loss(records()) == (
        "The lowest validation loss in the list, a mean over all clients, rose from 1.000 to 1.600."
    )


def test_votes_in_words() -> None:
    """Of 25 first choices 15 went to model 2, 10 to 0, 4 and 6; those voted out had 0, 0, 1, 0 and 0."""
    assert captions.votes(records()) == (
        "3 of 5 voters are attackers. First choices went 40\u00a0% to models that no attacker had touched and "
        "60\u00a0% to models with an attacker's update. A model that was voted out had 0.2 votes on average, "
        "1 at most. A bar is a round, a piece of it a candidate."
    )


def test_the_closest_vote_is_named() -> None:
    assert smallest_margin(GOOD_LINE) == (1, 3)
    assert captions.margin(records()) == (
        "The closest vote was in round 3: 1 more colluding ballot would have removed the honest favourite."
    )
    assert smallest_margin([{key: value for key, value in GOOD_LINE[0].items() if key != "margin"}]) is None


def test_time_in_words() -> None:
    run = records()
    assert run.seconds_by_phase() == pytest.approx(
        {"evaluation": 1.5, "training": 0.5, "voting": 0.25, "protocol": 0.25}
    )
    assert captions.phases(run) == "5 rounds took 2.5 s, 500.0 ms each; 60\u00a0% of it went into evaluation."


def test_what_is_left_out_is_said() -> None:
    many = [record | {"round": number} for number, record in enumerate(FIVE_ROUNDS[:1] * 400)]
    assert captions.loss(records(many)).endswith(" Every 3rd round is drawn, counted back from the last.")
    assert [captions.ordinal(number) for number in (2, 3, 11, 12, 21, 22, 101)] == [
        *("2nd", "3rd", "11th", "12th", "21st", "22nd", "101st"),
    ]


# Sweeps


def played(method: str, seed: int, accuracy: float, curve: Any = None, **settings: Any) -> Played:
    experiment = Experiment(**{"method": method, "seed": seed, "rounds": 10, **settings})
    return Played(experiment, {"test_accuracy": accuracy}, curve or [(5, accuracy / 2), (10, accuracy)])


SWEEP = [
    *(played("lidfl", seed, value, attack="lie") for seed, value in [(1, 0.8), (2, 0.6)]),
    *(played("fedavg", seed, value, attack="lie") for seed, value in [(1, 0.2), (2, 0.4)]),
    played("lidfl", 1, 0.5, attack="gauss"),
    played("fedavg", 1, 0.9, attack="gauss"),
]


def test_a_band_is_the_mean_and_deviation_over_seeds() -> None:
    first, last = mean_curve(SWEEP[:2])
    assert (first.round, first.mean, first.deviation) == pytest.approx((5, 0.35, 0.05))
    assert (last.round, last.mean, last.deviation, last.runs) == pytest.approx((10, 0.7, 0.1, 2))


def test_a_model_that_diverged_keeps_its_accuracy() -> None:
    run = played("fedavg", 1, 0.1, curve=[(2, 0.3)])
    stopped = replace(run, summary={"test_accuracy": 0.1, "diverged_at": 4})
    assert [(point.round, point.mean) for point in mean_curve([stopped])] == [(2, 0.3), (10, 0.1)]
    text = captions.curves(scenes([stopped])[0], ["fedavg"], ["fedavg"])
    assert "The model diverged in 1 run of fedavg; its accuracy is kept for the rounds left." in text


def test_a_dot_ends_the_curve_of_a_shorter_run_and_is_all_of_one_tested_once() -> None:
    once = played("fedavg", 1, 0.2, curve=[(4, 0.2)], attack="lie")
    shorter = replace(once, experiment=replace(once.experiment, rounds=4))
    (scene,) = scenes([*SWEEP[:2], shorter])
    drawing = figures.curves(scene, "lie", scene.methods, highest=1.0).to_dict()
    (layer,) = [layer for layer in drawing["layer"] if {"filter": "datum.ends"} in layer["transform"]]
    rows = drawing["data"]["values"]
    assert layer["mark"] == {"type": "circle", "size": 45, "opacity": 1}
    assert [(row["method"], row["round"], row["mean"]) for row in rows if row["ends"]] == [("fedavg", 4, 0.2)]
    text = captions.curves(scene, scene.methods, scene.methods)
    assert "A dot is the end of runs with fewer rounds than others." in text


def test_a_sweep_in_words() -> None:
    (scene,) = scenes(SWEEP)
    assert captions.curves(scene, scene.methods, scene.methods) == (
        "Lines are means over 1 to 2 runs, bands one standard deviation to each side. "
        "Highest at the end: fedavg under 1 of 2 attacks and lidfl under 1 of 2 attacks."
    )
    assert captions.heat_map(scene, scene.methods) == (
        "Final test accuracy. The worst attack leaves lidfl 0.500 (gauss) and fedavg 0.300 (lie)."
    )


def test_runs_that_differ_in_more_than_their_seed_are_not_averaged() -> None:
    runs = [played("lidfl", 1, 0.5, list_size=size) for size in (2, 3)]
    (scene,) = scenes([*runs, played("fedavg", 1, 0.1)])
    assert scene.methods == ["lidfl 2", "lidfl 3", "fedavg 1"]
    fractions = scenes([played("lidfl", 1, 0.5, byzantine_fraction=fraction) for fraction in (0.6, 0.4)])
    assert [chapter.title for chapter in fractions] == [
        *("digits-lr, 40\u00a0% Byzantine", "digits-lr, 60\u00a0% Byzantine"),
    ]


def test_rounds_tell_rows_apart_only_where_the_same_run_was_played_twice() -> None:
    short, long = (played("lidfl", 1, 0.5, attack="lie", rounds=rounds) for rounds in (10, 20))
    (scene,) = scenes([short, long])
    assert scene.methods == ["lidfl 10", "lidfl 20"]
    (scene,) = scenes([short, played("lidfl", 1, 0.5, attack="gauss", rounds=20)])
    assert scene.methods == ["lidfl"]


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


def test_of_too_many_methods_the_best_are_drawn_and_the_table_has_all() -> None:
    runs = [played("lidfl", 1, rate, learning_rate=rate) for rate in (number / 100 for number in range(1, 31))]
    page = sweep_page("grid", runs)
    assert [key.label for key in page.methods] == [f"lidfl {number / 100}" for number in range(17, 31)]
    curves, _, table = page.blocks
    assert isinstance(curves, Figure)
    assert isinstance(table, TableSection)
    assert "Only the 14 best of 30 methods are drawn; the table has them all." in curves.caption
    assert len(table.grid.rows) == 30


def test_downloads_hold_the_table_itself() -> None:
    grid = scenes(SWEEP)[0].grid
    table = TableSection("Accuracy", "table", grid)
    csv, latex = (b64decode(address.partition(",")[2]).decode() for address in (table.csv, table.latex))
    assert (csv, latex) == (as_csv(grid), as_latex(grid))
    assert table.best == {"gauss": 0.9, "lie": pytest.approx(0.7)}


# Pages


def test_an_unfinished_run_gets_its_report_and_is_called_unfinished(tmp_path: Path) -> None:
    run = put_run(tmp_path / "run", GOOD_LINE[:3])
    page = build([run])
    assert page.notices == [
        "This run is unfinished: 3 of 5 rounds are recorded. "
        f"Go on with: lidfl run --config {run}/experiment.toml --resume"
    ]
    assert [figure.name for figure in page.figures] == ["accuracy", "loss", "lineage", "votes", "margin", "time"]
    assert "1" in {fact.value for fact in page.facts if "margin" in fact.what}


def test_a_single_model_that_diverged_says_so_and_has_no_lineage(tmp_path: Path) -> None:
    own = FIVE.with_settings(method="fedavg", list_size=1, attack="gauss")
    lines = [record | {"loss": {}, "votes": {"0": 0}, "removed": []} for record in GOOD_LINE[:2]]
    for record in lines:
        for key in ("model", "margin"):
            record.pop(key)
    summary = {"test_accuracy": 0.1, "deployed_accuracy": 0.1, "diverged_at": 2}
    page = build([put_run(tmp_path / "run", lines, own, summary)])
    assert page.notices == [
        "The model diverged: after round 2 no client could train it to finite numbers. "
        "The run stopped there and keeps its accuracy for the 3 rounds left.",
        "fedavg keeps one model and holds no vote, so there are no votes, no validation losses and no lineage "
        "to draw.",
    ]
    assert [figure.name for figure in page.figures] == ["time"]


def test_a_page_needs_no_network_and_holds_its_script_once(tmp_path: Path) -> None:
    run = put_run(tmp_path / "run", GOOD_LINE)
    (page,) = write_report([run])
    assert page == run / "report.html"
    text = page.read_text()
    assert text.count("window.vegaEmbed=") == 1
    assert "<script src" not in text
    assert '<link rel="stylesheet"' not in text
    assert "default-src 'none'" in text


def test_names_cannot_break_out_of_the_page(tmp_path: Path) -> None:
    own = FIVE.with_settings(name="</script><script>alert(1)</script>")
    (page,) = write_report([put_run(tmp_path / "run", GOOD_LINE, own)])
    assert "<script>alert" not in page.read_text()
    assert script_safe({"a": "</script>"}) == '{"a":"\\u003c/script>"}'


def test_figures_are_written_for_a_paper(tmp_path: Path) -> None:
    run = put_run(tmp_path / "run", GOOD_LINE)
    _, *figures = write_report([run], figures=tmp_path / "figures")
    heads = {path.name: path.read_bytes()[:4] for path in figures}
    assert heads["lineage.svg"] == b"<svg"
    assert heads["lineage.pdf"] == b"%PDF"
    assert heads["lineage.png"] == b"\x89PNG"
    assert len(heads) == 18


def test_what_is_only_there_to_be_pointed_at_is_not_in_a_figure_for_a_paper() -> None:
    (curves, _) = sweep_page("a sweep", SWEEP).figures
    hidden = '"opacity": 0,'
    assert hidden in json.dumps(curves.panels[0].chart.to_dict())
    drawn = json.dumps(paper(curves))
    assert hidden not in drawn
    assert drawn.count('"type": "line"') == len(curves.panels)


def test_a_results_file_is_drawn_without_its_runs(tmp_path: Path) -> None:
    from dataclasses import asdict

    runs = {
        str(number): {"settings": asdict(run.experiment), "summary": run.summary, "curve": run.curve}
        for number, run in enumerate(SWEEP)
    }
    file = tmp_path / "femnist-lr-0.6.json"
    file.write_text(json.dumps(runs))
    (page,) = write_report([file])
    assert page == tmp_path / "femnist-lr-0.6.html"
    assert "lidfl reproduce femnist-lr-0.6" in page.read_text()
    assert "6 runs: 2 methods, 2 attacks and 2 seeds" in page.read_text()


def test_a_folder_of_runs_counts_what_is_unfinished(tmp_path: Path) -> None:
    summary = {"test_accuracy": 0.7, "deployed_accuracy": 0.8}
    put_run(tmp_path / "runs" / "a", GOOD_LINE, summary=summary)
    put_run(tmp_path / "runs" / "b", GOOD_LINE[:2])
    page = build([tmp_path / "runs"])
    assert page.notices == ["1 run without a result yet: left out."]
    assert [figure.name for figure in page.figures] == ["curves", "heatmap", "lineage-1"]


def test_the_shortest_command_repeats_the_settings() -> None:
    assert repeat_command(Experiment(rounds=7, name="mine", out="here")) == "lidfl run --rounds 7"
    own = Experiment(dataset="femnist", method="cwm", attack="lie:z=1.5", model="cnn")
    assert repeat_command(own) == "lidfl run --dataset femnist --model cnn --method cwm --attack lie:z=1.5"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "lidfl: there is no nowhere; name a run directory, a folder of runs or a results file"),
        (["."], "lidfl: there are no finished runs in ."),
        (["broken.json"], "lidfl: broken.json is not a results file of `lidfl reproduce`"),
        (["empty.json"], "lidfl: there are no results in empty.json"),
        (["run"], "lidfl: run has no finished round yet"),
        (["broken.json", "--formats", "gif"], "lidfl: unknown figure format 'gif'; choose from svg, pdf, png"),
        ([], "lidfl: name a run directory, a folder of runs or a results file"),
    ],
)
def test_bad_input_is_one_clear_line(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "broken.json").write_text("[1, 2]")
    (tmp_path / "empty.json").write_text("{}")
    put_run(tmp_path / "run", [])
    _, err = lidfl("report", *arguments, cwd=tmp_path, expect=2)
    assert err.startswith(message)
    assert len(err.splitlines()) == 1


def test_a_page_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    run = put_run(tmp_path / "run", GOOD_LINE)
    with pytest.raises(LidflError, match=r"cannot write to .*set --out or --figures"):
        write_report([run], out=Path("/dev/null/page.html"))
    with pytest.raises(LidflError, match="a report of several places needs a name; set --out"):
        write_report([run, run])
