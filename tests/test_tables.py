"""Tables show means and deviations, in four formats."""

from pathlib import Path

import pytest

from lidfl import Experiment, LidflError
from lidfl.tables import Grid, as_csv, as_latex, as_markdown, read_results, tabulate

RESULTS = [
    (Experiment(method="fedavg", attack="sign_flip", seed=1), {"test_accuracy": 0.1}),
    (Experiment(method="fedavg", attack="sign_flip", seed=2), {"test_accuracy": 0.3}),
    (Experiment(method="lidfl", proposal="rknn", attack="lie", seed=1), {"test_accuracy": 0.6}),
]


def grid() -> Grid:
    return tabulate(RESULTS, "method", "attack")


def test_markdown_by_hand() -> None:
    assert as_markdown(grid()) == (
        "| method | sign_flip | lie |\n"
        "| --- | ---: | ---: |\n"
        "| fedavg | 0.200 ± 0.100 | – |\n"
        "| lidfl+rknn | – | 0.600 |\n"
    )


def test_latex_by_hand() -> None:
    assert as_latex(grid()).splitlines() == [
        r"\begin{tabular}{lcc}",
        r"\toprule",
        r"method & sign\_flip & lie \\",
        r"\midrule",
        r"fedavg & 0.200 $\pm$ 0.100 & -- \\",
        r"lidfl+rknn & -- & 0.600 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_csv_counts_the_runs_of_each_cell() -> None:
    lines = as_csv(grid()).splitlines()
    assert lines[0] == "method,column,mean,std,runs"
    assert lines[1].startswith("fedavg,sign_flip,0.2")
    assert lines[1].endswith(",2")
    assert lines[2] == "fedavg,lie,nan,nan,0"


def test_slips_are_named(tmp_path: Path) -> None:
    with pytest.raises(LidflError, match="unknown setting 'colour'"):
        tabulate(RESULTS, "colour", "attack")
    with pytest.raises(LidflError, match="a summary has no 'loss'; choose from test_accuracy"):
        tabulate(RESULTS, "method", "attack", "loss")
    with pytest.raises(LidflError, match="no finished runs"):
        read_results(tmp_path)
