"""Tables show means and deviations, differences with their intervals, and costs, in four formats."""

from pathlib import Path

import pytest

from lidfl import Experiment, LidflError
from lidfl.studies.formats import as_csv, as_latex, as_markdown, as_rich, notes
from lidfl.studies.pairing import references_of, usual_reference
from lidfl.studies.sweep import Result
from lidfl.studies.tables import Cell, Grid, read_results, rows_that_tell_apart, tabulate

RESULTS = [
    (Experiment(method="fedavg", attack="sign_flip", seed=1), {"deployed_accuracy": 0.1}),
    (Experiment(method="fedavg", attack="sign_flip", seed=2), {"deployed_accuracy": 0.3}),
    (Experiment(method="lidfl", proposal="rknn", attack="lie", seed=1), {"deployed_accuracy": 0.6}),
]


def grid() -> Grid:
    return tabulate(RESULTS, "method", "attack")


def test_markdown_by_hand() -> None:
    assert as_markdown(grid()) == (
        "| method | sign_flip | lie |\n"
        "| --- | ---: | ---: |\n"
        "| fedavg | 0.200 ± 0.141 n=2 | – |\n"
        "| lidfl+rknn | – | 0.600 n=1 |\n"
    )


def test_latex_by_hand() -> None:
    assert as_latex(grid()).splitlines() == [
        r"\begin{tabular}{lcc}",
        r"\toprule",
        r"method & sign\_flip & lie \\",
        r"\midrule",
        r"fedavg & 0.200 $\pm$ 0.141 n=2 & -- \\",
        r"lidfl+rknn & -- & 0.600 n=1 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_latex_writes_the_signs_of_a_method_as_they_are() -> None:
    runs = [(Experiment(method="nnm|krum"), {"deployed_accuracy": 0.5})]
    assert "nnm$|$krum & " in as_latex(tabulate(runs, "method", "attack"))


def test_csv_counts_the_runs_of_each_cell() -> None:
    lines = as_csv(grid()).splitlines()
    assert lines[0] == "method,column,mean,std,runs"
    assert lines[1].startswith("fedavg,sign_flip,0.2")
    assert lines[1].endswith(",2")
    assert lines[2] == "fedavg,lie,,,0"


def test_what_varies_besides_the_seed_is_never_pooled() -> None:
    """0.444 ± 0.444 was the mean over two Byzantine fractions."""
    both = [
        (Experiment(byzantine_fraction=fraction, seed=seed), {"deployed_accuracy": accuracy})
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
        (
            Experiment(seed=seed, eval_every=seed, checkpoint_every=seed, name=f"run{seed}"),
            {"deployed_accuracy": 0.5},
        )
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
    with pytest.raises(LidflError, match="a summary has no 'loss'; choose from deployed_accuracy"):
        tabulate(RESULTS, "method", "attack", "loss")
    with pytest.raises(LidflError, match="no finished runs"):
        read_results(tmp_path)


# Differences


def played(seed: int, accuracy: float, **settings: object) -> Result:
    """A run by what clients deploy; its best model is 0.1 better."""
    experiment = Experiment(**{"seed": seed, "rounds": 10, **settings})  # type: ignore[arg-type]
    return experiment, {"deployed_accuracy": accuracy, "test_accuracy": accuracy + 0.1, "seconds": 2.0}


ORACLE = [played(seed, value, method="oracle", attack="none") for seed, value in ((1, 0.5), (2, 0.7), (3, 0.6))]
LIDFL = [played(seed, value, attack="lie") for seed, value in ((1, 0.4), (2, 0.55), (3, 0.35))]
"""The differences −0.1, −0.15 and −0.25 have the mean −1/6 and the deviation 0.0764; t(2) is 4.303."""


def test_a_cell_says_how_far_it_is_from_the_oracle_which_heeds_no_attack() -> None:
    compared = tabulate([*LIDFL, *ORACLE], "method", "attack", against="oracle")
    gap = compared.cell("lidfl", "lie").difference
    assert gap is not None
    assert (gap.mean, gap.low, gap.high, gap.seeds) == pytest.approx((-1 / 6, -0.3564, 0.0231, 3), abs=1e-4)
    assert compared.cell("oracle", "none").difference is None
    assert as_markdown(compared).splitlines()[2:] == [
        "| lidfl | 0.433 ± 0.104 (0.533)<br>−0.167 [−0.356, +0.023] | – |",
        "| oracle | – | 0.600 ± 0.100 (0.700) |",
    ]
    assert r"0.433 $\pm$ 0.104 (0.533) $-$0.167 [$-$0.356, +0.023]" in as_latex(compared)


def test_a_mark_stands_where_the_interval_excludes_zero_and_notes_say_what_it_is() -> None:
    worse = [played(seed, value - 0.3, attack="lie") for seed, value in ((1, 0.5), (2, 0.71), (3, 0.59))]
    compared = tabulate([*worse, *ORACLE], "method", "attack", against="oracle")
    assert as_markdown(compared).splitlines()[2].endswith("−0.300 [−0.325, −0.275]* | – |")
    assert r"$-$0.275]$^{*}$" in as_latex(compared)
    assert notes(compared) == [
        "test accuracy of what honest clients deploy: mean ± sample deviation over 3 seeds",
        "in brackets: test accuracy of the best model of the list, the paper's measure",
        "then: difference from oracle with the same seeds, its 95 % interval (paired t), and * where that "
        "excludes 0",
    ]


def test_csv_has_difference_interval_and_pairs() -> None:
    lines = as_csv(tabulate([*LIDFL, *ORACLE[:2]], "method", "attack", against="oracle")).splitlines()
    assert lines[0] == "method,column,mean,std,runs,test_accuracy,difference,low,high,pairs"
    *_, difference, low, high, pairs = lines[1].split(",")
    assert [float(difference), int(pairs)] == pytest.approx([-0.125, 2])
    half = 12.7062 * 0.0353553 / 2**0.5  # t(1), and the deviation of −0.1 and −0.15
    assert [float(low), float(high)] == pytest.approx([-0.125 - half, -0.125 + half], abs=1e-4)


def test_seeds_stand_beside_cells_only_where_their_numbers_differ() -> None:
    assert "n=" not in as_markdown(tabulate([*LIDFL, *ORACLE], "method", "attack"))
    told = as_markdown(tabulate([*LIDFL, *ORACLE[:2]], "method", "attack"))
    assert "0.433 ± 0.104 (0.533) n=3" in told
    assert "0.600 ± 0.141 (0.700) n=2" in told


def test_the_worst_honest_client_is_a_value_too_and_has_no_brackets() -> None:
    worst = [(e, summary | {"deployed_worst": 0.25}) for e, summary in LIDFL]
    assert as_markdown(tabulate(worst, "method", "attack", "deployed_worst")).endswith("| 0.250 ± 0.000 |\n")


def test_costs_stand_beside_the_value() -> None:
    """Of 20 clients one trains 10 steps and 20 vote in each of 10 rounds; of the oracle's, 8 train."""
    grid = tabulate([*LIDFL, *ORACLE], "method", "attack", against="oracle")
    header, _, lidfl, oracle = as_markdown(grid, costs=True).splitlines()
    assert header.endswith("| steps | MB | votes | seconds |")
    assert lidfl.endswith("| 100 | – | 200 | 2.0 |")  # how large a model is, these summaries do not say
    assert oracle.endswith("| 800 | – | 0 | 2.0 |")
    assert as_csv(grid, costs=True).splitlines()[1].endswith(",3,100.0,,200.0,2.0")
    assert len(as_rich(grid, costs=True).columns) == 1 + 2 + 4


# Who is compared with whom


def test_a_reference_agrees_in_the_world_and_in_what_it_heeds() -> None:
    lidfl = Experiment(attack="lie", vote_attack="random")
    elsewhere = [
        played(1, 0.5, method="oracle", byzantine_fraction=0.4),
        played(1, 0.5, method="oracle", model="mlp"),
    ]
    assert references_of(lidfl, elsewhere) == []
    oracle = played(1, 0.5, method="oracle", attack="none", vote_attack="worst")
    assert references_of(lidfl, [*elsewhere, oracle]) == [oracle]
    one_model = [played(1, 0.5, method="fedavg", attack=attack, vote_attack="worst") for attack in ("none", "lie")]
    assert references_of(lidfl, one_model) == one_model[1:], "FedAvg suffers attacks, but holds no vote"
    other_votes = played(1, 0.5, method="lidfl-ranked", attack="lie", vote_attack="worst")
    assert references_of(lidfl, [other_votes]) == []


def test_of_several_fitting_references_the_nearest_counts_and_an_ambiguous_one_does_not() -> None:
    long, short = (played(1, 0.5, method="oracle", rounds=rounds) for rounds in (150, 10))
    assert references_of(Experiment(rounds=150), [long, short]) == [long]
    assert references_of(Experiment(rounds=25), [long]) == [long]
    assert references_of(Experiment(rounds=25), [long, short]) == []


def test_a_row_can_be_the_reference_and_the_oracle_is_the_usual_one() -> None:
    bounded = [played(seed, 0.5 + seed / 100, judge="bounded", attack="lie") for seed in (1, 2, 3)]
    grid = tabulate([*LIDFL, *bounded], "method judge", "attack", against="lidfl loss")
    assert grid.cell("lidfl loss", "lie").difference is None
    gap = grid.cell("lidfl bounded", "lie").difference
    assert gap is not None
    assert gap.mean == pytest.approx((0.11 - 0.03 + 0.18) / 3)
    assert usual_reference([*LIDFL, *ORACLE]) == "oracle"
    assert usual_reference(LIDFL) is None
    assert usual_reference(ORACLE) is None
    with pytest.raises(LidflError, match="no run of 'krum' is there to compare with; choose from lidfl, oracle"):
        tabulate([*LIDFL, *ORACLE], "method", "attack", against="krum")


def test_what_is_no_number_is_no_value() -> None:
    with pytest.raises(LidflError, match="'commit' is no number; choose from deployed_accuracy"):
        tabulate([(e, s | {"commit": "abc"}) for e, s in LIDFL], "method", "attack", "commit")
