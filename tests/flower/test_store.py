"""A node's own model, without anybody copying files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from safetensors.torch import load_file

from lidfl import Experiment, RunDirectory, pick
from lidfl.flower import store
from lidfl.flower.apps import OwnApp, pick_from
from lidfl.flower.codec import Ask, Vector, Work, content_hash
from lidfl.flower.local.audit import open_audit
from lidfl.flower.local.shares import FiledTask
from lidfl.flower.server import Control, serve
from lidfl.flower.store import AFTERWARDS, Keeping, keep_own, notes_of
from lidfl.flower.worker import Worker
from lidfl.methods.deploying import deploy
from lidfl.simulation.deploying import SimulatedOwn
from lidfl.simulation.simulator import Simulator
from tests.flower.nodes import PLURALITY, grid_of, six


def test_a_node_has_the_model_that_does_best_on_its_own_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last to vote is client 0, whose node has the highest id: it has what `lidfl pick` chooses, or better."""
    experiment = six(**PLURALITY, out=str(tmp_path / "run"))
    grid = grid_of(experiment, tmp_path / "data")
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "node" / "model.safetensors"))
    grid.apps = {node: app if node == 1000 else without(app, monkeypatch) for node, app in grid.apps.items()}
    serve(experiment, Control(), grid, open_audit)
    told = notes_of(tmp_path / "node" / "model.safetensors")
    assert told["round"] == 8
    choice = pick(experiment.out, client=0, out=tmp_path / "picked.safetensors")
    assert told["loss"] == pytest.approx(min(told["losses"]))
    assert told["loss"] <= choice.losses.min() + 1e-6, "the list is among what was voted on"
    mine, final = load_file(tmp_path / "node" / "model.safetensors"), RunDirectory(experiment.out).final_state()
    vector = torch.cat([mine["1.weight"].flatten(), mine["1.bias"]])
    assert (told["rule"], told["whole"]) == ("best", True)
    if told["loss"] == pytest.approx(float(choice.losses.min()), abs=1e-6):
        assert (final.models.parameters[choice.position] == vector).all()


def without(app: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An app of a node that wants no file."""

    def handle(message: object, context: object) -> object:
        with monkeypatch.context() as patch:
            patch.delenv(store.VARIABLE)
            return app(message, context)

    return handle


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Experiment, Path]:
    """A run of six nodes, and the folder of their data."""
    folder = tmp_path_factory.mktemp("played")
    experiment = six(**PLURALITY, out=str(folder / "run"))
    serve(experiment, Control(), grid_of(experiment, folder / "data"), open_audit)
    return experiment, folder / "data"


@pytest.mark.parametrize("rule", list(deploy))
def test_a_node_makes_of_the_list_what_a_simulated_client_makes_of_it(
    played: tuple[Experiment, Path], tmp_path: Path, rule: str
) -> None:
    """By its own data, with the same draws; and so does `lidfl pick` with the data of the run."""
    experiment, data = played
    simulator = Simulator.of(experiment.with_settings(deploy=rule))
    own = SimulatedOwn(2, simulator.workshop, simulator.judges)
    final = RunDirectory(experiment.out).final_state().models
    expected = deploy.resolve(rule)(final.parameters, own, rounds=experiment.rounds)
    app = OwnApp(data, experiment, {}, FiledTask(str(data)), testing=False)
    node = pick_from(experiment.out, app, client=2, deploy=rule, out=tmp_path / "node.safetensors")
    plain = pick(experiment.out, client=2, deploy=rule, out=tmp_path / "plain.safetensors")
    for choice in (node, plain):
        assert flat(choice.path) == pytest.approx(expected.numpy(), abs=1e-6)
    assert node.losses == pytest.approx(plain.losses, abs=1e-6)


def flat(path: Path) -> Vector:
    model = load_file(path)
    vector: Vector = torch.cat([model["1.weight"].flatten(), model["1.bias"]]).numpy()
    return vector


def keeping(data: Path, path: Path, number: int, rule: str = "tuned") -> Keeping:
    """A vote of round `number` of four, of two candidates."""
    work = Work(seed=3, steps=20, batch_size=16, learning_rate=0.1, momentum=0.0, deploy=rule, rounds=4)
    vectors = [np.full(650, value, dtype=np.float32) for value in (0.0, 0.01)]
    known = {content_hash(vector): vector for vector in vectors}
    ask = Ask("vote", number - 1, 0, tuple(known), 1, work)
    worker = Worker(FiledTask(str(data)), ask, {"partition-id": 0})
    losses = {name: worker.loss(vector) for name, vector in known.items()}
    return Keeping(worker, ask, known, losses, 7, path)


def test_training_for_oneself_waits_for_the_last_vote_and_stops_when_time_is_up(
    played: tuple[Experiment, Path], tmp_path: Path
) -> None:
    found = {}
    for name, number, seconds in (("early", 3, 60.0), ("hurried", 4, 0.0), ("last", 4, 60.0)):
        keeping(played[1], tmp_path / name, number).do(seconds)
        found[name] = notes_of(tmp_path / name)
    assert found["early"]["loss"] == found["hurried"]["loss"] == min(found["early"]["losses"])
    assert found["last"]["loss"] < 0.5 * found["early"]["loss"]
    assert [found[name]["whole"] for name in found] == [False, False, True]


def test_a_choice_that_comes_late_does_not_undo_a_later_one(
    played: tuple[Experiment, Path], tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    for number, expected in ((2, 2), (3, 3), (1, 3)):
        keeping(played[1], path, number, "soup").do(60.0)
        assert notes_of(path)["round"] == expected
    path.write_bytes(b"spoilt")
    keeping(played[1], path, 1, "soup").do(60.0)
    assert notes_of(path)["round"] == 1


def test_where_somebody_sees_to_it_a_reply_does_not_wait_for_the_nodes_own_model(
    played: tuple[Experiment, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "model.safetensors"))
    monkeypatch.setattr(AFTERWARDS, "waiting", [])
    job = keeping(played[1], tmp_path / "unused", 4)
    keep_own(job.worker, job.ask, job.vectors, job.losses, 7, 1.0)
    assert not (tmp_path / "model.safetensors").exists()
    AFTERWARDS.do()
    assert notes_of(tmp_path / "model.safetensors")["whole"], "and it has all the time that it wants"
