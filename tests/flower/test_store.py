"""A node's own model, without anybody copying files."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from safetensors import safe_open
from safetensors.torch import load_file

from lidfl import RunDirectory, pick
from lidfl.flower import store
from lidfl.flower.local.audit import open_audit
from lidfl.flower.server import Control, serve
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
    with safe_open(tmp_path / "node" / "model.safetensors", framework="pt") as file:
        told = json.loads(file.metadata()["lidfl"])
    assert told["round"] == 8
    choice = pick(experiment.out, client=0, out=tmp_path / "picked.safetensors")
    assert told["loss"] == pytest.approx(min(told["losses"]))
    assert told["loss"] <= choice.losses.min() + 1e-6, "the list is among what was voted on"
    mine, final = load_file(tmp_path / "node" / "model.safetensors"), RunDirectory(experiment.out).final_state()
    vector = torch.cat([mine["1.weight"].flatten(), mine["1.bias"]])
    if told["loss"] == pytest.approx(float(choice.losses.min()), abs=1e-6):
        assert (final.models.parameters[choice.position] == vector).all()


def without(app: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An app of a node that wants no file."""

    def handle(message: object, context: object) -> object:
        with monkeypatch.context() as patch:
            patch.delenv(store.VARIABLE)
            return app(message, context)

    return handle
