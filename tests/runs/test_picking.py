"""A client picks by its own data, and needs nothing of the run but its models."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

import lidfl
from lidfl import Experiment, LidflError, RunDirectory, pick, run
from lidfl.learning.client import candidate_losses
from lidfl.learning.models import build_model
from lidfl.learning.parameters import Network
from lidfl.runs.picking import holdings


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of five models, under an attack that is not there any more."""
    out = tmp_path_factory.mktemp("picking") / "run"

    @lidfl.attack
    def bygone(own: object) -> object:
        """Send the update the wrong way."""
        return -own  # type: ignore[operator]

    run(Experiment(attack="bygone", byzantine_fraction=0.8, rounds=15, out=str(out)))
    del lidfl.attack.functions["bygone"]
    return out


def test_a_client_takes_the_model_of_its_lowest_loss(finished: Path, tmp_path: Path) -> None:
    choice = pick(finished, client=2, out=tmp_path / "mine.safetensors")
    assert len(choice.losses) == 5
    assert choice.position == choice.losses.argmin()
    assert choice.path.exists()


def test_reading_a_run_does_not_need_the_attack_that_it_names(finished: Path) -> None:
    assert RunDirectory(finished).experiment().attack == "bygone"
    with pytest.raises(LidflError, match="unknown attack 'bygone'"):
        Experiment.from_toml(finished / "experiment.toml")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(client=20), "there is no client 20; the run has clients 0 … 19"),
        (dict(client=-1), "there is no client -1"),
        ({}, "whose data"),
        (dict(client=0, out="/dev/null/x"), "cannot write /dev/null/x"),
    ],
)
def test_slips_are_named(finished: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(LidflError, match=message):
        pick(finished, **options)  # type: ignore[arg-type]


def test_data_with_more_classes_than_the_models_know_is_refused(finished: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x=np.zeros((30, 8, 8), np.float32), y=np.arange(30) % 11)
    with pytest.raises(LidflError, match="classes that the models do not: they know 0 … 9"):
        pick(finished, dataset=f"npz:{tmp_path / 'own.npz'}")


@pytest.mark.parametrize("rule", ["average", "soup", "tuned:parts=3", "joined:parts=2"])
def test_a_rule_of_ones_own_makes_a_model_of_the_list(finished: Path, tmp_path: Path, rule: str) -> None:
    choice = pick(finished, client=2, out=tmp_path / "mine.safetensors", deploy=rule)
    assert 0 <= choice.accuracy <= 1
    assert choice.path.exists()
    if rule != "average":
        best = pick(finished, client=2, out=tmp_path / "best.safetensors")
        module = build_model("lr", (1, 8, 8), 10, seed=0)
        network = Network(module)
        module.load_state_dict(load_file(choice.path))
        own = holdings(RunDirectory(finished).experiment(), RunDirectory(finished).inputs().statistics, None, 2)
        loss = candidate_losses(network, Network(module).initial()[None], *own.validation)
        assert loss[0] <= best.losses.min() + 1e-6, "what is kept is never worse on own data"


def test_to_tune_takes_training_data(finished: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x=np.zeros((30, 8, 8), np.float32), y=np.arange(30) % 10)
    with pytest.raises(LidflError, match='takes training data: give client=…, or deploy="alike"'):
        pick(finished, dataset=f"npz:{tmp_path / 'own.npz'}", deploy="tuned")
