"""Real nodes join a run and leave it: the roll is the folder of keys, and the list follows it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from lidfl import Experiment
from lidfl.flower.credentials import make_node_key
from lidfl.flower.local.federation import LocalFederation
from lidfl.flower.local.processes import marked
from tests.flower.local.scenes import play

pytestmark = [pytest.mark.federation, pytest.mark.filterwarnings("ignore")]


def admit(federation: LocalFederation, *clients: int) -> None:
    """Put keys into the folder that `lidfl server` watches."""
    for client in clients:
        shutil.copy(federation.home / f"node-{client}.key.pub", federation.home / "nodes" / f"site-{client}.pub")


def rolls(out: Path) -> list[dict[str, int]]:
    """The roll of every round so far."""
    file = out / "rounds.jsonl"
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    return [json.loads(line)["roll"] for line in lines if line.endswith("\n")]


def wait_until(out: Path, what: Callable[[dict[str, int]], bool], log: Path) -> dict[str, int]:
    """The first roll of which something holds."""
    until = monotonic() + 600
    while not (found := [roll for roll in rolls(out) if what(roll)]):
        assert monotonic() < until, (rolls(out)[-3:], log.read_text()[-2000:])
        sleep(0.5)
    return found[0]


def test_two_nodes_join_a_run_of_three_and_one_is_put_out_while_it_goes_on(tmp_path: Path) -> None:
    settings: dict[str, Any] = dict(num_clients=3, byzantine_fraction=0, rounds=400, engine="loop")
    experiment = Experiment.of(settings | dict(checkpoint_every=1, eval_every=100, out=str(tmp_path / "run")))
    with LocalFederation(experiment) as federation:
        federation.claim()
        federation.prepare()
        (federation.home / "nodes").mkdir()
        for client in (3, 4):
            make_node_key(federation.home, f"node-{client}.key")
            shares = federation.home / "data"
            shutil.copy(shares / f"node-{client - 3}.safetensors", shares / f"node-{client}.safetensors")
        admit(federation, 0, 1, 2)
        federation.start_link()
        for client in range(3):
            federation.start_node(client)
        out = play(federation, "open", deadline=60.0, open_roll=True, vouched=1)
        log = federation.logs / "superlink.log"
        first = wait_until(out, lambda roll: roll["clients"] == 3, log)
        assert (first["seats"], first["joined"], first["room"]) == (3, 0, 0)
        for client in (3, 4):
            federation.start_node(client)  # not let in yet: its key is not there
        admit(federation, 3, 4)
        more = wait_until(out, lambda roll: roll["clients"] == 5, log)
        assert (more["seats"], more["joined"], more["left"], more["margin_at_worst"]) == (5, 2, 0, 0)
        (federation.home / "nodes" / "site-1.pub").unlink()
        fewer = wait_until(out, lambda roll: roll["left"] == 1, log)
        assert (fewer["clients"], fewer["seats"], fewer["joined"]) == (4, 4, 2)
        assert fewer["margin_at_worst"] < 0, "the one that the operator vouched for may be the one that left"
        done = len(rolls(out))
        wait_until(out, lambda roll: len(rolls(out)) > done + 1, log)
        assert "if all who joined are malicious" in (out / "server.log").read_text()
    assert not list(marked(federation.processes.mark))
