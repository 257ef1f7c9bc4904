"""Real servers and clients do what the simulator does, and what the docs promise."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest
import torch

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from lidfl import RunDirectory, run
from lidfl.flower.template import write_app
from tests.command import lines_without_times, start

pytestmark = [pytest.mark.federation, pytest.mark.filterwarnings("ignore")]


def up(out: Path, *flags: object) -> str:
    """Run `lidfl federation up` to its end; what it prints."""
    process = start("federation", "up", *flags, "--out", out.name, cwd=out.parent)
    text, err = process.communicate(timeout=900)
    assert process.returncode == 0, f"{text}\n{err}"
    return text


def difference(out: Path) -> float:
    """How far the list of a federation is from that of a simulation with the same settings."""
    experiment = RunDirectory(out).experiment()
    alone = experiment.with_settings(out=str(out.with_name(out.name + "-simulated")))
    run(alone)
    ours, theirs = (RunDirectory(path).final_state().models.parameters for path in (out, alone.out))
    return float((ours - theirs).abs().max())


def test_a_federation_survives_four_liars_of_six_and_equals_the_simulation(tmp_path: Path) -> None:
    began = monotonic()
    text = up(tmp_path / "run", "--nodes", 6, "--byzantine", 4, "--attack", "sign_flip", "--vote-attack", "worst")
    assert monotonic() - began < 600
    summary = RunDirectory(tmp_path / "run").summary()
    assert summary["test_accuracy"] >= 0.8
    assert f"honest clients deploy {summary['deployed_accuracy']:.3f}" in text
    assert "round 20/20" in text
    assert difference(tmp_path / "run") == 0
    assert not any(line["rejected"] for line in lines_without_times(tmp_path / "run"))


def test_ranked_ballots_give_the_simulators_list(tmp_path: Path) -> None:
    up(tmp_path / "run", "--byzantine", 0, "--list-size", 2, "--method", "lidfl-ranked", "--rounds", 8)
    assert difference(tmp_path / "run") < 1e-6


def test_the_app_that_init_flower_writes_runs_as_it_is(tmp_path: Path) -> None:
    write_app(tmp_path / "my-app")
    text = up(tmp_path / "run", "--app", "my-app", "--nodes", 3, "--rounds", 2)
    assert "my-app: 3 nodes, 0 of them told to attack, list of 3" in text
    assert "round 2/2, votes" in text
    assert "(3 of 3)" in text
    lines = lines_without_times(tmp_path / "run")
    assert [line["rejected"] for line in lines] == [{}, {}]
    assert not any("accuracy" in line for line in lines), "nobody could know"
    assert not any("honest" in birth for line in lines for birth in line["born"]), "nor this"
    assert torch.isfinite(RunDirectory(tmp_path / "run").final_state().models.parameters).all()


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="pip install 'flwr[simulation]>=1.41,<1.42'")
def test_flowers_own_simulation_runs_the_same_app(tmp_path: Path) -> None:
    write_app(tmp_path / "my_app")
    code = (
        "from flwr.simulation import run_simulation\n"
        "from lidfl import Experiment\n"
        "from lidfl.flower import client_app, server_app\n"
        "from my_app import task\n"
        "server = server_app(Experiment(model='my_app.task:model', num_clients=4, rounds=2, out='run'))\n"
        "backend = {'client_resources': {'num_cpus': 1, 'num_gpus': 0}, 'init_args': {'num_cpus': 2}}\n"
        "run_simulation(server, client_app(task), num_supernodes=4, backend_config=backend)\n"
    )
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, 'my_app')\n{code}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert [line["rejected"] for line in lines_without_times(tmp_path / "run")] == [{}, {}]
