"""Faults of real processes: after each, the run ends with its rounds done and nothing lost that was saved."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from lidfl import Experiment, RunDirectory, run
from lidfl.flower.local.federation import LocalFederation
from lidfl.flower.local.playing import liars_of
from lidfl.flower.local.processes import marked
from tests.command import lines_without_times, start
from tests.flower.local.scenes import rounds_done, server_apps, wait_for

pytestmark = [pytest.mark.federation, pytest.mark.filterwarnings("ignore")]

NODES = 6
DEADLINE = 30.0
CLIENT = """import json
import time
from pathlib import Path

import numpy as np
from flwr.app import ConfigRecord, RecordDict
from flwr.clientapp import ClientApp

from lidfl.flower import client_app
from lidfl.flower.codec import Reply, pack_reply, read_ask, reply_with
from lidfl.flower.local.shares import FiledTask

FOLDER = Path({folder!r})


class Faulty(FiledTask):
    hangs = False

    def data(self, partition, partitions):
        while self.hangs:
            time.sleep(1)
        return super().data(partition, partitions)


task = Faulty({data!r})
honest = client_app(task, testing=True)
app = ClientApp()


def handle(message, context):
    name = f"{{context.node_config['partition-id']}} {{read_ask(message.content).kind}}"
    fault = json.loads((FOLDER / "faults.json").read_text()).get(name)
    if fault == "busy":
        (FOLDER / name).touch()
        time.sleep(8)
    if fault == "raise":
        raise RuntimeError("out of order")
    if fault == "garbage":
        return reply_with(RecordDict({{"lidfl": ConfigRecord({{"kind": 1}})}}), message)
    if fault == "nan":
        return reply_with(pack_reply(Reply("trained", update=np.full(650, np.nan, dtype=np.float32))), message)
    task.hangs = fault == "hang"
    return honest(message, context)


for register in (app.query, app.train, app.evaluate):
    register()(handle)
"""


class Scene:
    """Six nodes, and a file that says which of them misbehave at what."""

    def __init__(self, federation: LocalFederation, folder: Path) -> None:
        self.federation = federation
        self.folder = folder
        self.set_faults({})

    def set_faults(self, faults: dict[str, str]) -> None:
        (self.folder / "faults.json").write_text(json.dumps(faults))

    def play(self, name: str, rounds: int, **config: Any) -> Path:
        out = self.folder / name
        self.federation.submit(out=str(out), rounds=rounds, deadline=DEADLINE, wait=150.0, **config)
        return out

    def start_again(self, client: int) -> None:
        """Start a node with the same key; Flower refuses it while it takes the old one to be online."""
        until = monotonic() + 300
        while True:
            self.federation.start_node(client)
            try:
                self.federation.processes[f"node-{client}"].wait(timeout=15)
            except subprocess.TimeoutExpired:
                return
            assert monotonic() < until, "the node is not let in again"
            sleep(5)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("faults")
    experiment = settings(folder / "first")
    with LocalFederation(experiment, liars=liars_of(experiment)) as federation:
        federation.claim()
        federation.prepare()
        assert federation.app
        code = CLIENT.format(folder=str(folder), data=str(federation.home / "data"))
        (federation.app / "federation" / "client_app.py").write_text(code)
        federation.up()
        yield Scene(federation, folder)
    assert not list(marked(federation.processes.mark)), "a process was left behind"


def settings(out: Path, **changes: Any) -> Experiment:
    """All six train and vote, so that every fault shows in every round."""
    usual: dict[str, Any] = dict(num_clients=NODES, byzantine_fraction=0.5, attack="none", vote_attack="none")
    usual |= dict(workers=NODES, rounds=4, eval_every=1, engine="loop", checkpoint_every=1, out=str(out))
    return Experiment.of(usual | changes)


def finish(out: Path) -> list[dict[str, Any]]:
    wait_for(lambda: RunDirectory(out).is_finished, 900)
    return lines_without_times(out)


def same_list(out: Path, rounds: int) -> bool:
    """Whether a run ended with the list of a simulation that was left alone."""
    alone = settings(out.with_name(out.name + "-alone"), rounds=rounds)
    run(alone)
    return (Path(alone.out) / "models.safetensors").read_bytes() == (out / "models.safetensors").read_bytes()


def test_a_client_that_hangs_raises_answers_garbage_or_nan_costs_only_its_own_reply(scene: Scene) -> None:
    scene.set_faults(
        {"0 train": "hang", "1 train": "raise", "2 train": "garbage", "3 train": "nan", "1 vote": "raise"}
    )
    lines = finish(scene.play("misbehaving", rounds=2))
    scene.set_faults({})
    assert len(lines) == 2
    for line in lines:
        assert line["rejected"]["not finite"] == 1
        assert line["rejected"]["wrong type"] == 1
        (birth,) = line["born"]
        assert birth["clients"] in ([4], [5])
        assert sum(line["votes"].values()) >= 4


def test_a_killed_server_app_resumes_with_the_same_list(scene: Scene) -> None:
    out = scene.play("server-killed", rounds=3)
    wait_for(lambda: rounds_done(out) >= 1)
    (server,) = server_apps(scene.federation)
    os.kill(server, signal.SIGKILL)
    sleep(1)
    assert not RunDirectory(out).is_finished
    assert len(finish(scene.play("server-killed", rounds=3, resume=True))) == 3
    assert same_list(out, 3)


def test_a_killed_superlink_resumes_with_the_same_list_and_the_clients_rejoin(scene: Scene) -> None:
    out = scene.play("link-killed", rounds=3)
    wait_for(lambda: rounds_done(out) >= 1)
    scene.federation.processes.kill("superlink")
    wait_for(lambda: not server_apps(scene.federation))
    assert not RunDirectory(out).is_finished
    scene.federation.start_link()
    lines = finish(scene.play("link-killed", rounds=3, resume=True))
    assert lines[-1]["rejected"] == {}, "all are there again"
    assert same_list(out, 3)


def test_nodes_killed_while_they_train_and_vote_are_missed_and_come_back_with_their_keys(scene: Scene) -> None:
    scene.set_faults({"4 train": "busy", "5 vote": "busy"})
    out = scene.play("nodes-killed", rounds=3)
    wait_for((scene.folder / "4 train").exists)
    scene.federation.processes.kill("node-4")
    wait_for((scene.folder / "5 vote").exists)
    scene.federation.processes.kill("node-5")
    lines = finish(out)
    scene.set_faults({})
    assert len(lines) == 3
    assert all(line["rejected"].get("missing", 0) >= 1 for line in lines)
    members = json.loads((out / "nodes.json").read_text())
    for client in (4, 5):
        scene.start_again(client)
    assert finish_longer(scene, "nodes-killed", rounds=4)[-1]["rejected"] == {}
    assert json.loads((out / "nodes.json").read_text()) == members, "each is who it was"


def finish_longer(scene: Scene, name: str, rounds: int) -> list[dict[str, Any]]:
    RunDirectory(scene.folder / name).unfinish()
    return finish(scene.play(name, rounds=rounds, resume=True))


def test_a_third_of_the_nodes_leaving_in_the_middle_does_not_stop_the_run(scene: Scene) -> None:
    out = scene.play("leaving", rounds=3)
    wait_for(lambda: rounds_done(out) >= 1)
    for client in (0, 3):
        scene.federation.processes.kill(f"node-{client}")
    lines = finish(out)
    assert len(lines) == 3
    assert lines[-1]["rejected"] == {"missing": 4}, "two trainings and two ballots"
    assert lines[-1]["stood"] == 2, "of those who left, the last ballots stand"
    assert sum(lines[-1]["votes"].values()) == 6


@pytest.mark.parametrize(
    "numbers",
    [(signal.SIGINT,), (signal.SIGINT, signal.SIGINT), (signal.SIGTERM,), (signal.SIGKILL,)],
    ids=["Ctrl-C", "Ctrl-C twice", "SIGTERM", "SIGKILL"],
)
def test_however_it_ends_federation_up_leaves_no_process_behind(
    tmp_path: Path, numbers: tuple[signal.Signals, ...]
) -> None:
    process = start("federation", "up", "--nodes", 2, "--byzantine", 0, "--out", "run", cwd=tmp_path)
    wait_for((tmp_path / "run" / "checkpoint.safetensors").exists)  # the first round has begun
    mark = next(
        value.partition(b"=")[2].decode()
        for pid in children_of(process.pid)
        for value in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if value.startswith(b"LIDFL_FEDERATION=")
    )
    assert list(marked(mark))
    for number in numbers:
        process.send_signal(number)
        sleep(0.05)
    _, err = process.communicate(timeout=180)
    assert "Traceback" not in err
    wait_for(lambda: not list(marked(mark)), 120)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
