"""Settings: the paper's defaults, exact numbers, TOML and back, and slips reported before round one."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lidfl import Experiment, LidflError


@pytest.mark.parametrize(
    ("fraction", "byzantine", "list_size"), [(0.4, 14, 1), (0.6, 21, 2), (0.8, 28, 5), (0, 0, 1)]
)
def test_counts_and_list_size_are_the_papers(fraction: float, byzantine: int, list_size: int) -> None:
    experiment = Experiment(dataset="femnist", byzantine_fraction=fraction)
    assert (experiment.num_byzantine, experiment.list_size) == (byzantine, list_size)


@given(st.integers(1, 200), st.integers(0, 99))
def test_the_byzantine_count_is_exact(num_clients: int, percent: int) -> None:
    experiment = Experiment(num_clients=num_clients, byzantine_fraction=percent / 100)
    assert experiment.num_byzantine == percent * num_clients // 100


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (dict(dataset="femnist"), dict(num_clients=35, rounds=1500, local_steps=25, batch_size=32, model="lr")),
        (dict(dataset="femnist", model="cnn"), dict(rounds=1500, local_steps=25, batch_size=64)),
        (dict(dataset="cifar10"), dict(rounds=2000, local_steps=20, batch_size=32, model="cnn", split="4:1:1")),
        (dict(dataset="femnist:images=100", rounds=3), dict(num_clients=35, rounds=3, split="36:9:5")),
    ],
)
def test_defaults_are_the_papers(settings: dict[str, Any], expected: dict[str, Any]) -> None:
    experiment = Experiment(**settings)
    assert {name: getattr(experiment, name) for name in expected} == expected
    assert (experiment.learning_rate, experiment.momentum) == (0.01, 0.9)


def is_a_name(text: str) -> bool:
    return not set(text) & set("/\\\0") and text not in (".", "..")


@given(
    name=st.text(min_size=1).filter(is_a_name),
    out=st.text(min_size=1).filter(lambda text: "\0" not in text),
    seed=st.integers(0, 2**63 - 1),
    rate=st.floats(1e-30, 1e30),
)
def test_toml_gives_back_an_equal_experiment(name: str, out: str, seed: int, rate: float) -> None:
    import tomllib

    experiment = Experiment(name=name, out=out, seed=seed, learning_rate=rate)
    assert Experiment.of(tomllib.loads(experiment.to_toml())) == experiment


def test_an_old_name_of_a_setting_is_taken_and_the_new_one_named(caplog: pytest.LogCaptureFixture) -> None:
    assert Experiment.of(dict(method="lidfl", propose="all")).groups == "all"
    assert caplog.messages == ["the setting 'propose' is now called 'groups'; rename it"]


def test_a_recorded_experiment_is_taken_as_it_stands() -> None:
    recorded = Experiment.recorded(
        dict(method="my_rule", attack="mine:z=1", model="a.b:c", num_clients=4, rounds=2)
    )
    assert (recorded.method_label, recorded.keeps_list, recorded.list_size) == ("my_rule", False, 1)
    short = Experiment.recorded(dict(method="lidfl", num_clients=10, byzantine_fraction=0.8, list_size=1))
    assert short.list_size == 1  # a list that is refused today
    with pytest.raises(LidflError, match="rounds must be int, not 'many'"):
        Experiment.recorded(dict(rounds="many"))


def test_flags_go_before_the_file(tmp_path: Path) -> None:
    (tmp_path / "e.toml").write_text('dataset = "femnist"\nrounds = 7\n')
    experiment = Experiment.from_toml(tmp_path / "e.toml", rounds=9)
    assert (experiment.dataset, experiment.rounds, experiment.num_clients) == ("femnist", 9, 35)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(rouns=3), "unknown setting 'rouns'; did you mean 'rounds'?"),
        (dict(attack="sing_flip"), "unknown attack 'sing_flip'; choose from alie, "),
        (dict(method="krumm"), "unknown method 'krumm'; choose from lidfl, lidfl-ranked, local, oracle, baffle, "),
        (dict(proposal="krumm"), "unknown proposal 'krumm'; choose from "),
        (dict(method="fedavg", proposal="rknn"), "proposal goes with method = lidfl"),
        (dict(method="fedavg", list_size=3), "list_size goes with method = lidfl"),
        (dict(byzantine_fraction=0.8, list_size=4), "list_size 4 is too small"),
        (dict(byzantine_fraction=1), "byzantine_fraction must be in"),
        (dict(rounds=0), "rounds must be at least 1"),
        (dict(rounds="9"), "rounds must be int, not '9'"),
        (dict(rounds=True), "rounds must be int, not True"),
        (dict(learning_rate=float("nan")), "learning_rate must be positive"),
        (dict(momentum=1), "momentum must be in"),
        (dict(split="4:1"), "split '4:1' must be"),
        (dict(device="gpu?"), "unknown device"),
        (dict(model="lr2"), "unknown model 'lr2'; choose from cnn, lr, mlp"),
        (dict(model="no.such.module:net"), "No module named 'no'"),
        (dict(model="math:pi"), "is not a function"),
        (dict(attack="lie:z=many"), "option 'z' of attack 'lie' must be float, not 'many'"),
        (dict(dataset="npz"), "dataset 'npz' needs path"),
    ],
)
def test_a_slip_is_named_with_its_fix_in_one_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(LidflError) as error:
        Experiment.of(settings)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_every_setting_has_help_and_a_value_once_built() -> None:
    experiment = Experiment()
    for setting in fields(Experiment):
        assert setting.metadata["help"]
        assert getattr(experiment, setting.name) is not None


def test_the_default_directory_is_named_after_run_and_seed() -> None:
    assert Experiment(name="first", seed=3).out == "runs/first-3"


@pytest.mark.parametrize(
    "settings", [dict(candidates=2), dict(proposal="rknn", groups="all"), dict(proposal="rknn+meb")]
)
def test_several_candidates_under_plurality_are_allowed_and_warned_about(settings: dict[str, Any]) -> None:
    (caution,) = Experiment(**settings).cautions
    assert 'colluding voters can remove them all; set election="ranked"' in caution
    assert Experiment(**settings, election="ranked").cautions == []


@pytest.mark.parametrize(
    "settings", [{}, dict(proposal="rknn"), dict(method="fedavg"), dict(method="lidfl-ranked")]
)
def test_what_keeps_its_guarantee_is_not_warned_about(settings: dict[str, Any]) -> None:
    assert Experiment(**settings).cautions == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(voters=21), "voters must be from 0 .all. to num_clients, 20"),
        (dict(workers=-1), "workers must be from 0 .all. to num_clients, 20"),
        (dict(candidates=0), "candidates must be at least 1, not 0"),
        (dict(groups="some"), "unknown groups 'some'; choose from one, all"),
        (dict(parent="mine"), "unknown parent 'mine'; choose from uniform, favourite"),
        (dict(method="gm", election="ranked"), "election goes with method = lidfl; leave it out with gm"),
        (dict(method="oracle", voters=3), "voters goes with method = lidfl; leave it out with oracle"),
    ],
)
def test_a_slip_in_the_rules_of_a_round_is_named_with_its_fix(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(LidflError, match=message):
        Experiment(**settings)
