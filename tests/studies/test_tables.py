"""Tables show means and deviations, in four formats."""

from pathlib import Path

import pytest

from lidfl import Experiment, LidflError
from lidfl.studies.tables import (
    Cell,
    Grid,
    as_csv,
    as_latex,
    as_markdown,
    read_results,
    rows_that_tell_apart,
    tabulate,
)

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
        "| fedavg | 0.200 ± 0.141 | – |\n"
        "| lidfl+rknn | – | 0.600 |\n"
    )


def test_latex_by_hand() -> None:
    assert as_latex(grid()).splitlines() == [
        r"\begin{tabular}{lcc}",
        r"\toprule",
        r"method & sign\_flip & lie \\",
        r"\midrule",
        r"fedavg & 0.200 $\pm$ 0.141 & -- \\",
        r"lidfl+rknn & -- & 0.600 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_csv_counts_the_runs_of_each_cell() -> None:
    lines = as_csv(grid()).splitlines()
    assert lines[0] == "method,column,mean,std,runs"
    assert lines[1].startswith("fedavg,sign_flip,0.2")
    assert lines[1].endswith(",2")
    assert lines[2] == "fedavg,lie,,,0"


def test_what_varies_besides_the_seed_is_never_pooled() -> None:
    """0.444 ± 0.444 was the mean over two Byzantine fractions."""
    both = [
        (Experiment(byzantine_fraction=fraction, seed=seed), {"test_accuracy": accuracy})
        for fraction, accuracy in ((0.4, 0.9), (0.6, 0.1))
        for seed in (1, 2)
    ]
    with pytest.raises(
        LidflError, match=r"lidfl × sign_flip differ in byzantine_fraction \(0\.4, 0\.6\)"
    ) as refused:
        tabulate(both, "method", "attack")
    assert 'rows="method byzantine_fraction"' in str(refused.value)
    rows = rows_that_tell_apart(both, "attack")
    assert rows == "method byzantine_fraction"  # the list's length follows from it, and is no row
    cells = tabulate(both, rows, "attack").cells
    assert {row: cell.text() for (row, _), cell in cells.items()} == {
        "lidfl 0.4": "0.900 ± 0.000",
        "lidfl 0.6": "0.100 ± 0.000",
    }


def test_what_does_not_change_a_result_tells_no_runs_apart() -> None:
    alike = [
        (Experiment(seed=seed, eval_every=seed, checkpoint_every=seed, name=f"run{seed}"), {"test_accuracy": 0.5})
        for seed in (1, 2)
    ]
    assert rows_that_tell_apart(alike, "attack") == "method"
    assert tabulate(alike, "method", "attack").cell("lidfl", "sign_flip").values == (0.5, 0.5)


def test_the_deviation_is_the_samples_and_one_seed_has_none() -> None:
    assert Cell((0.1, 0.2, 0.6)).deviation == pytest.approx(0.26457513)  # √(((−0.2)² + (−0.1)² + 0.3²) / 2)
    assert Cell((0.1,)).deviation is None
    assert Cell(()).deviation is None
    assert Cell((0.1,)).text() == "0.100"


def test_slips_are_named(tmp_path: Path) -> None:
    with pytest.raises(LidflError, match="unknown setting 'colour'"):
        tabulate(RESULTS, "colour", "attack")
    with pytest.raises(LidflError, match="a summary has no 'loss'; choose from test_accuracy"):
        tabulate(RESULTS, "method", "attack", "loss")
    with pytest.raises(LidflError, match="no finished runs"):
        read_results(tmp_path)
