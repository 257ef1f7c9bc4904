"""A node's state as the live page shows it."""

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from lidfl.flower.exchange import Conduct
from lidfl.flower.fleet import Fleet
from lidfl.flower.members import Members
from lidfl.flower.nodes_view import view_nodes
from tests.flower.local_grid import LocalGrid
from tests.flower.nodes import QUICK, hello


def test_who_is_away_late_failing_or_misbehaving_is_told_apart(tmp_path: Path) -> None:
    grid = LocalGrid({node: (hello(node), {}) for node in range(6)})
    fleet = Fleet(grid, QUICK)
    members = Members(fleet, 6, tmp_path / "nodes.json")
    members.present()
    grid.online = {0, 1, 2, 3, 4}
    members.present()
    fleet.conduct[1].reason = "late no answer within 9 s"
    fleet.conduct[2].reason = "failed out of memory"
    fleet.conduct[3] = Conduct(refused=Counter({"garbage": 1}))
    fleet.patience.charge(4, QUICK.deadline)
    views = view_nodes(fleet, members)
    assert [view.state for view in views] == ["well", "late", "failing", "misbehaving", "late", "away"]
    assert (views[4].credit, views[0].credit) == (0, 1)
