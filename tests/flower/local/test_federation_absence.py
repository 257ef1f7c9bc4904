"""Real nodes that are away for a while and come back within one run: whoever is absent does not decide."""

import json
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import Any

import pytest

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from lidfl import Experiment
from lidfl.flower.local.federation import LocalFederation
from lidfl.flower.local.playing import liars_of
from lidfl.flower.local.processes import marked
from lidfl.protocol import ModelList
from tests.command import lines_without_times
from tests.flower.local.scenes import rounds_done, server_apps, wait_for

pytestmark = [pytest.mark.federation, pytest.mark.filterwarnings("ignore")]

NODES = 6
AWAY = 3
"""So many rounds at least: Flower lets a killed node in again once it counts as offline, a minute later."""


class Absence:
    """Six nodes, four of them liars, whose run is longer than any test."""

    def __init__(self, federation: LocalFederation) -> None:
        self.federation = federation
        self.run = federation.directory
        self.honest = sorted(set(range(NODES)) - set(federation.liars))
        federation.submit(out=str(self.run.path.resolve()), resume=True, deadline=20.0, wait=150.0)

    def done(self) -> int:
        return rounds_done(self.run.path)

    def wait_for_rounds(self, more: int) -> None:
        until = self.done() + more
        wait_for(lambda: self.done() >= until, 600)

    def models(self) -> ModelList:
        return self.run.checkpoint().models

    def lines(self) -> list[dict[str, Any]]:
        return lines_without_times(self.run.path)

    def leave(self, clients: list[int]) -> None:
        for client in clients:
            self.federation.processes.kill(f"node-{client}")

    def come_back(self, clients: list[int]) -> None:
        for client in clients:
            self.federation.start_node(client)

    def favourite(self) -> int | None:
        """The model that the ballots of both honest nodes are for; None while they differ."""
        if not self.run.checkpoint_file.exists():
            return None
        standing = self.models().standing
        first = {standing.get(client, (None,))[0] for client in self.honest}
        return first.pop() if len(first) == 1 else None

    def members(self) -> Any:
        return json.loads((self.run.path / "nodes.json").read_text())


@pytest.fixture
def absence(tmp_path: Path) -> Iterator[Absence]:
    usual: dict[str, Any] = dict(
        num_clients=NODES, byzantine_fraction=0.67, attack="sign_flip", vote_attack="worst"
    )
    usual |= dict(rounds=1000, eval_every=1, engine="loop", checkpoint_every=1, out=str(tmp_path / "run"))
    experiment = Experiment.of(usual)
    with LocalFederation(experiment, liars=liars_of(experiment)) as federation:
        federation.claim()
        federation.prepare()
        federation.up()
        yield Absence(federation)
    assert not list(marked(federation.processes.mark)), "a process was left behind"


def test_two_honest_of_six_are_away_for_some_rounds_and_back_and_meanwhile_their_ballots_stand(
    absence: Absence,
) -> None:
    wait_for(lambda: absence.done() >= 3 and absence.favourite() is not None, 900)
    absence.leave(absence.honest)
    server, members, before = server_apps(absence.federation), absence.members(), absence.done()
    liked = absence.favourite()
    absence.wait_for_rounds(AWAY)
    absence.come_back(absence.honest)
    wait_for(lambda: all_there(absence.lines()[-1]), 900)
    lines = absence.lines()
    away = [line for line in lines[before:] if line.get("stood", 0)]
    assert len(away) >= AWAY
    for line in away:
        assert line["stood"] >= len(absence.honest)
        assert line["votes"][str(liked)] >= len(absence.honest), "what they liked has their votes"
        assert liked not in line["removed"]
        assert line["deployed_accuracy"] > 0.9 * lines[before - 1]["deployed_accuracy"]
    assert absence.members() == members, "each is who it was"
    assert server_apps(absence.federation) == server, "it is the same run"
    print(f"away for {len(away)} rounds, from round {before + 1}")  # noqa: T201


def all_there(line: dict[str, Any]) -> bool:
    return not line.get("stood") and not line["rejected"] and sum(line["votes"].values()) == NODES


def test_while_all_nodes_are_away_no_round_is_counted_the_server_says_that_it_waits_and_goes_on(
    absence: Absence,
) -> None:
    wait_for(lambda: absence.done() >= 1, 900)
    server = server_apps(absence.federation)
    absence.leave(list(range(NODES)))
    log = absence.run.path / "server.log"
    wait_for(lambda: "too few answers" in log.read_text(), 300)
    done, models = absence.done(), absence.models()
    sleep(20)  # several tries
    assert absence.done() == done
    assert absence.models().ids == models.ids
    absence.come_back(list(range(NODES)))
    wait_for(lambda: absence.done() > done and all_there(absence.lines()[-1]), 900)
    lines = absence.lines()
    assert [line["round"] for line in lines] == list(range(len(lines)))
    assert lines[done]["skipped"] >= 2, "it was tried again and again, and counted once"
    assert f"round {done + 1}: too few answers" in log.read_text()
    assert server_apps(absence.federation) == server, "it is the same run"
