"""Plans: what is asked, what is refused, and what people and programs read."""

import json
import math
import sys
from fractions import Fraction
from pathlib import Path
from subprocess import check_output

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lidfl.errors import LidflError
from lidfl.settings.experiment import Experiment
from lidfl.theory import Question, as_dict, plan
from tests.command import lidfl_inside


def test_plan_counts_clients_as_an_experiment_does() -> None:
    for clients in (10, 20, 35, 101):
        for fraction in ("0.1", "0.3", "0.6", "0.8", "0.95"):
            experiment = Experiment(num_clients=clients, byzantine_fraction=float(fraction))
            electorate = Question(clients=clients, honest_fraction=float(1 - Fraction(fraction))).electorate
            assert (electorate.num_honest, electorate.list_size) == (experiment.num_honest, experiment.list_size)


@given(
    clients=st.integers(1, 60),
    share=st.floats(0.01, 1),
    p=st.floats(0.5, 1),
    candidates=st.integers(1, 3),
    voters=st.integers(0, 5),
    delta=st.floats(1e-12, 0.5),
    size=st.none() | st.integers(1, 4),
)
@settings(max_examples=50)
def test_every_plan_can_be_written_as_json(
    clients: int, share: float, p: float, candidates: int, voters: int, delta: float, size: int | None
) -> None:
    question = Question(
        clients=clients,
        honest_fraction=share,
        p=p,
        candidates=min(candidates, clients),
        voters=min(voters, clients),
        delta=delta,
        list_size=size,
    )
    made = json.loads(json.dumps(as_dict(plan(question)), allow_nan=False))
    assert all(figure["sentence"].endswith(".") for figure in made["figures"].values())
    for key, figure in made["figures"].items():
        if "failure" in key or "good" in key:
            assert 0 <= figure["value"] <= 1
    rounds = [point["round"] for point in made["curve"]]
    assert rounds == sorted(set(rounds))
    assert {0, 1, 10, 100, 1500} <= set(rounds)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(clients=35), "give either --honest, such as 14, or --honest-fraction"),
        (dict(honest=3), "--clients is missing"),
        (dict(clients=35, honest=36), "--honest must be at least 1 and at most 35, not 36"),
        (dict(clients=35, honest=14, p=0.0), "--p must be above 0 and at most 1"),
        (dict(clients=35, honest=14, alpha=2.0), "--beta must be at least 2"),
        (dict(clients=35, honest=14, delta=0.6), "--delta must be at least 1e-300 and at most 0.5"),
        (dict(clients=35, honest=14, list_size=0), "--list-size must be at least 1"),
        (dict(clients=35, honest=14, eta=math.nan), "--eta must be at least 1e-12"),
        (dict(clients=35, honest=14, voters=36), "--voters must be at least 0 and at most 35"),
    ],
)
def test_a_question_without_sense_is_refused_in_one_line(settings: dict[str, float], message: str) -> None:
    with pytest.raises(LidflError, match=message.replace("(", r"\(")):
        Question(**settings)  # type: ignore[arg-type]


def test_a_chance_too_small_for_a_float_is_not_called_zero() -> None:
    made = plan(Question(clients=1_000_000, honest=400_000))
    (failure,) = (
        figure for section in made.sections for figure in section.promises if figure.key == "vote_failure"
    )
    assert failure.text == "< 1e-300"


def test_plan_speaks_to_people_and_to_programs(tmp_path: Path) -> None:
    text, _ = lidfl_inside("plan", "--clients", 35, "--honest", 14, cwd=tmp_path)
    for words in ("a list of 2 models", "The quota holds", "Hoeffding", "--eta (default)", "E[f − f*]"):
        assert words in text
    written, _ = lidfl_inside("plan", "--clients", 35, "--honest-fraction", 0.2, "--json", cwd=tmp_path)
    figures = json.loads(written)["figures"]
    assert (figures["list_size"]["value"], figures["margin"]["value"]) == (5, 1)
    _, error = lidfl_inside("plan", "--clients", 35, cwd=tmp_path, expect=2)
    assert error.startswith("lidfl: give either --honest")


def test_the_theory_is_cheap_to_import() -> None:
    loaded = "{'torch', 'rich', 'scipy.stats'} & set(sys.modules)"
    assert (
        check_output([sys.executable, "-c", f"import sys, lidfl.theory; print({loaded})"], text=True) == "set()\n"
    )


def told(**question: int) -> dict[str, float | None]:
    return {p.key: p.value for section in plan(Question(**question)).sections for p in section.promises}


def test_a_committees_quota_is_of_its_own_voters() -> None:
    """20 of 35 vote, 14 are honest: of 20 ballots ⌊20/3⌋ + 1 keep a model, and 8 voters are honest on average."""
    committee, everyone = told(clients=35, honest=14, voters=20), told(clients=35, honest=14)
    assert (committee["quota"], committee["margin"]) == (7, 1)
    assert (everyone["quota"], everyone["margin"]) == (12, 2)


def test_a_plan_says_for_which_fractions_a_list_is_safe() -> None:
    found = told(clients=35, honest=7)
    assert (found["list_size"], found["least_honest"], found["cost_of_caution"]) == (5, 6, 5)
    lists = [found[f"list_for_{percent}"] for percent in (80, 60, 40, 20)]
    assert lists == [35 // honest for honest in (28, 21, 14, 7)]


def test_with_a_bounded_judgement_the_largest_loss_is_known() -> None:
    """ln 62 = 4.127; with 200 images √(ln 2000/400) = 0.1378 of it."""
    figures = as_dict(plan(Question(clients=35, honest=14, classes=62, images=200)))["figures"]
    assert figures["loss_range"]["value"] == pytest.approx(4.1271, abs=1e-4)
    assert figures["eta_of_images"]["value"] == pytest.approx(0.5689, abs=1e-4)
    same = as_dict(plan(Question(clients=35, honest=14, loss_range=math.log(62))))["figures"]
    assert figures["validation_size"] == same["validation_size"]
    assert not {"loss_range", "eta_of_images"} & same.keys()
    for wrong in ({"classes": 1}, {"classes": 10, "loss_range": 3.0}):
        with pytest.raises(LidflError, match="--classes, at least 2, or --loss-range"):
            Question(clients=35, honest=14, **wrong)
