"""An app of the user's own: what it is given, and what a node picks from its run."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from safetensors.torch import load_file

from lidfl import LidflError, RunDirectory, pick
from lidfl.flower import client_app
from lidfl.flower.apps import pick_from, read_app
from lidfl.flower.server import Control, serve
from lidfl.flower.template import write_app
from tests.flower.local_grid import LocalGrid


def test_an_app_is_given_only_settings_that_it_lists(tmp_path: Path) -> None:
    write_app(tmp_path / "listed_app")
    app = read_app(tmp_path / "listed_app", {"rounds": 3, "num_clients": 9, "out": "runs/mine"})
    assert app.config == {"rounds": 3, "num-clients": 9, "out": "runs/mine"}
    played = app.experiment
    assert (played.rounds, played.num_clients, played.out, played.num_byzantine) == (3, 9, "runs/mine", 6)
    assert played.model == "listed_app.task:model"
    assert not app.testing
    with pytest.raises(
        LidflError, match=r"does not list 'learning-rate' under \[tool\.flwr\.app\.config\]; add it"
    ):
        read_app(tmp_path / "listed_app", {"learning_rate": 0.1})


def test_a_node_picks_from_the_run_of_an_app_by_its_own_data(tmp_path: Path) -> None:
    write_app(tmp_path / "picked_app")
    app = read_app(tmp_path / "picked_app", {"rounds": 2, "num_clients": 4, "out": str(tmp_path / "run")})
    node = client_app(app.task)
    grid = LocalGrid({10 + c: (node, {"partition-id": c, "num-partitions": 4}) for c in range(4)})
    serve(app.experiment, Control(), grid, open_audit=None)
    choice = pick_from(tmp_path / "run", app, client=2)
    _, (images, labels) = app.task.data(2, 4)
    losses = []
    for row in RunDirectory(tmp_path / "run").final_state().models.parameters:
        weight, bias = row[:640].reshape(10, 64), row[640:]
        losses.append(float(torch.nn.functional.cross_entropy(images.flatten(1) @ weight.T + bias, labels)))
    assert choice.losses == pytest.approx(losses, rel=1e-5)
    assert choice.position == int(np.argmin(losses))
    assert load_file(choice.path)["1.weight"].shape == (10, 64)
    with pytest.raises(LidflError, match="there is no client 4; the run has clients 0 … 3"):
        pick_from(tmp_path / "run", app, client=4)
    with pytest.raises(LidflError, match="give its folder as app=…"):
        pick(tmp_path / "run", client=2)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("", "is not a Flower app"),
        ("from nowhere import app", "cannot load broken_app.server_app:app of .*nowhere"),
        ("app = object()", "is not made of lidfl.flower.server_app and client_app"),
    ],
)
def test_what_is_no_app_of_lidfl_is_named_in_one_line(tmp_path: Path, broken: str, message: str) -> None:
    folder = tmp_path / "broken_app"
    if broken:
        write_app(folder)
        (folder / "broken_app" / "server_app.py").write_text(broken)
        for name in [name for name in sys.modules if name.startswith("broken_app")]:
            del sys.modules[name]
    with pytest.raises(LidflError, match=message):
        read_app(folder, {})
