"""A run in which nobody can train stops and says why; liars cannot stop one."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from lidfl import Experiment, LidflError, RunDirectory
from lidfl.flower import client_app
from lidfl.flower.complaints import Complaints
from lidfl.flower.server import Control, serve
from tests.flower.local_grid import LocalGrid

BINARY = """
import torch
from torch import nn

def model():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 1))

def data(partition, partitions):
    from sklearn.datasets import load_digits
    digits = load_digits()
    inputs = torch.from_numpy(digits.images[partition::partitions] / 16).float()
    labels = torch.from_numpy((digits.target[partition::partitions] > 4)).float()[:, None]
    return (inputs[:100], labels[:100]), (inputs[100:], labels[100:])
"""
LOSS = """
def loss(module, inputs, labels):
    return nn.functional.binary_cross_entropy_with_logits(module(inputs), labels)

def optimizer(parameters, learning_rate, momentum):
    return torch.optim.Adam(parameters, lr=learning_rate)
"""


def play(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: str) -> RunDirectory:
    """Four nodes whose task is this code."""
    (folder / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(str(folder))
    settings = dict(model=f"{name}:model", num_clients=4, byzantine_fraction=0.5, rounds=12, learning_rate=0.05)
    experiment = Experiment.of(settings | dict(out=str(folder / name), checkpoint_every=1))
    app = client_app(__import__(name))
    grid = LocalGrid({10 + c: (app, {"partition-id": c, "num-partitions": 4}) for c in range(4)})
    serve(experiment, Control(deadline=20.0), grid, None)
    del sys.modules[name]
    return RunDirectory(experiment.out)


def test_a_binary_task_with_its_own_loss_and_optimiser_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    directory = play(tmp_path, monkeypatch, "binary_task", BINARY + LOSS)
    assert all(not record.rejected for record in directory.records())
    sys.path.insert(0, str(tmp_path))
    task = __import__("binary_task")
    inputs, labels = task.data(0, 4)[1]
    weights = directory.final_state().models.parameters
    hits = [
        float((((inputs.flatten(1) @ w[:64] + w[64]) > 0).float()[:, None] == labels).float().mean())
        for w in weights
    ]
    assert max(hits) > 0.75
    assert torch.isfinite(weights).all()


def test_a_task_that_cannot_be_trained_stops_the_run_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One output and labels in a column: the mean cross-entropy does not fit."""
    broken = BINARY + "\ndef loss(module, inputs, labels):\n    raise ValueError('labels in a column')\n"
    with pytest.raises(LidflError, match=r"no client can train, 3 of 4 for one reason: .*labels in a column"):
        play(tmp_path, monkeypatch, "broken_task", broken)
    log = (tmp_path / "broken_task" / "server.log").read_text()
    assert "stopped: no client can train" in log.splitlines()[-1]
    assert not RunDirectory(tmp_path / "broken_task").is_finished


def test_liars_who_fail_on_purpose_do_not_stop_a_run() -> None:
    complaints = Complaints(num_clients=6, num_honest=2)
    for _ in range(50):
        complaints.hear(dict.fromkeys(range(4), "failed we cannot"), succeeded=False)
    with pytest.raises(LidflError, match="5 of 6 for one reason"):
        complaints.hear({4: "failed we cannot"}, succeeded=False)
    once = Complaints(num_clients=6, num_honest=2)
    once.hear({}, succeeded=True)
    for _ in range(50):
        once.hear(dict.fromkeys(range(6), "failed we cannot"), succeeded=False)
    once.end()


def test_a_run_in_which_nothing_was_of_use_does_not_end_as_if_all_were_well() -> None:
    complaints = Complaints(num_clients=6, num_honest=2)
    complaints.hear({0: "failed one", 1: "failed two"}, succeeded=False)
    with pytest.raises(
        LidflError, match="no update was of use in any round; client 0: failed one; client 1: failed two"
    ):
        complaints.end()
