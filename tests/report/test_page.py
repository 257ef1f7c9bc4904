"""The page and the files for a paper: complete, safe, and with the numbers to take away."""

import json
from base64 import b64decode

from lidfl import Experiment
from lidfl.report.page import TableSection, paper, repeat_command, script_safe
from lidfl.report.scenes import scenes
from lidfl.report.story import sweep_page
from lidfl.studies.formats import as_csv, as_latex
from tests.report.by_hand import SWEEP, recorded


def test_downloads_hold_the_table_itself() -> None:
    grid = scenes(SWEEP)[0].grid
    table = TableSection("Accuracy", "table", grid)
    csv, latex = (b64decode(address.partition(",")[2]).decode() for address in (table.csv, table.latex))
    assert (csv, latex) == (as_csv(grid, costs=True), as_latex(grid, costs=True))
    assert {column: round(mean, 9) for column, mean in table.best.items()} == {"gauss": 0.9, "lie": 0.7}
    assert "lidfl,gauss,0.5,,1,100.0,,200.0," in csv.splitlines()


def test_nothing_can_end_the_script_element_that_it_stands_in() -> None:
    assert script_safe({"a": "</script>"}) == '{"a":"\\u003c/script>"}'


def test_what_is_only_there_to_be_pointed_at_is_not_in_a_figure_for_a_paper() -> None:
    (curves, _) = sweep_page("a sweep", SWEEP).figures
    hidden = '"opacity": 0,'
    assert hidden in json.dumps(curves.panels[0].chart.to_dict())
    drawn = json.dumps(paper(curves))
    assert hidden not in drawn
    assert drawn.count('"type": "line"') == len(curves.panels)


def test_the_shortest_command_repeats_the_settings() -> None:
    assert repeat_command(Experiment(rounds=7, name="mine", out="here")) == "lidfl run --rounds 7"
    own = Experiment(dataset="femnist", method="cwm", attack="lie:z=1.5", model="cnn")
    assert repeat_command(own) == "lidfl run --dataset femnist --model cnn --method cwm --attack lie:z=1.5"


def test_a_command_needs_nothing_that_it_names() -> None:
    own = recorded(Experiment(rounds=7), model="evil:f", attack="mine", dataset="ours")
    assert repeat_command(own) == "lidfl run --dataset ours --model evil:f --attack mine --rounds 7"
