"""Which node is which client, whatever nodes claim."""

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from flwr.app import Context, Message

from lidfl.flower.fleet import Fleet
from lidfl.flower.members import Members
from tests.flower.local_grid import LocalGrid
from tests.flower.nodes import QUICK, hello, silent


def test_whatever_nodes_claim_each_has_one_number_and_each_number_one_node(tmp_path: Path) -> None:
    claims = {11: 0, 12: 0, 13: 0, 14: -5, 15: 10**9, 16: 2}
    grid = LocalGrid({node: (hello(claim), {}) for node, claim in claims.items()})
    members = Members(Fleet(grid, QUICK), 6, tmp_path / "nodes.json").present()
    assert sorted(members) == list(range(6))
    assert sorted(members.values()) == sorted(claims)


def test_there_are_never_more_clients_than_the_experiment_has(tmp_path: Path) -> None:
    grid = LocalGrid({node: (hello(0), {}) for node in range(1, 9)})
    assert len(Members(Fleet(grid, QUICK), 3, tmp_path / "nodes.json").present()) == 3


def test_a_node_keeps_its_number_when_it_leaves_and_comes_back(tmp_path: Path) -> None:
    grid = LocalGrid({node: (hello(node), {}) for node in range(3)})
    members = Members(Fleet(grid, QUICK), 3, tmp_path / "nodes.json")
    assert members.present() == {0: 0, 1: 1, 2: 2}
    grid.online = {0, 2}
    assert members.present() == {0: 0, 2: 2}
    grid.online = {0, 1, 2}
    asked = len(grid.pushed)
    again = Members(Fleet(grid, QUICK), 3, tmp_path / "nodes.json")
    assert again.present() == {0: 0, 1: 1, 2: 2}
    assert len(grid.pushed) == asked, "nobody has to say it twice"


def test_a_run_begins_when_every_node_has_answered_even_those_that_are_known(tmp_path: Path) -> None:
    deaf = iter([True, True, False])

    def late(message: Message, context: Context) -> Message | None:
        return None if next(deaf) else hello(1)(message, context)

    (tmp_path / "nodes.json").write_text('{"0": 1, "1": 2}')
    grid = LocalGrid({1: (hello(0), {}), 2: (late, {})})
    Members(Fleet(grid, QUICK), 2, tmp_path / "nodes.json").wait(30)
    assert [message.metadata.dst_node_id for message in grid.pushed].count(1) == 1
    assert next(deaf, None) is None


def test_a_node_that_will_not_say_who_it_is_does_not_hold_up_every_round(tmp_path: Path) -> None:
    grid = LocalGrid({1: (hello(0), {}), 2: (silent, {})})
    members = Members(Fleet(grid, QUICK), 2, tmp_path / "nodes.json")
    for _ in range(5):
        assert members.present() == {0: 1}
    assert len(grid.pushed) == 2
