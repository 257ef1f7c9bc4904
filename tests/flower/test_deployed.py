"""A round with real nodes: its traffic, its times, and what only an auditor can tell."""

from pathlib import Path

import pytest
import torch

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from lidfl.flower.answers import Answers
from lidfl.flower.complaints import Complaints
from lidfl.flower.deployed import Audit, Deployed
from lidfl.flower.fleet import Fleet
from lidfl.flower.local.audit import open_audit
from lidfl.flower.members import Members
from lidfl.protocol import ModelList, Outcome, Record, Vote
from lidfl.settings.experiment import Experiment
from tests.flower.nodes import PLURALITY, QUICK, grid_of, silent, six

NOTHING = Record(round_index=0, born=(), votes={}, removed=(), rejected={})


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    return six(**PLURALITY, out=str(tmp_path / "run"))


def deployed(experiment: Experiment, folder: Path, audit: Audit | None = None) -> Deployed:
    """Six nodes, of which the last does not answer."""
    grid = grid_of(experiment, folder)
    members = {client: 1000 - client for client in range(6)}
    grid.apps[members[5]] = silent
    fleet = Fleet(grid, QUICK)
    known = Members(fleet, 6, folder / "nodes.json")
    known.node_of = members
    return Deployed(Answers(experiment, fleet, known), audit, Complaints(6, 3))


def vote(models: ModelList) -> Vote:
    return Vote(0, models, voters=tuple(range(6)), seats=1)


def test_a_round_counts_its_own_traffic_however_often_it_is_asked(experiment: Experiment, tmp_path: Path) -> None:
    federation = deployed(experiment, tmp_path)
    models = ModelList.initial(torch.zeros(650), 2)
    first = federation.open_round()
    first.answer(vote(models))
    found = first.findings(Outcome(models, NOTHING), test=False)
    assert found.refused == {"late": 1}
    assert found.traffic is not None
    assert found.traffic["sent"] > 6 * 4 * 650
    assert found == first.findings(Outcome(models, NOTHING), test=False), "to describe a round changes nothing"
    second = federation.open_round()
    empty = second.findings(Outcome(models, NOTHING), test=False)
    assert (empty.traffic, empty.refused, dict(second.seconds)) == ({"sent": 0, "received": 0}, {}, {})
    assert list(first.seconds) == ["vote"]


def test_without_an_auditor_nothing_is_told_of_models(experiment: Experiment, tmp_path: Path) -> None:
    models = ModelList.initial(torch.zeros(650), 2)
    found = deployed(experiment, tmp_path).open_round().findings(Outcome(models, NOTHING), test=True)
    assert (found.honest, found.loss, found.accuracy, found.deployed_accuracy) == ({}, {}, {}, None)


def test_an_auditor_tells_accuracies_and_the_traffic_is_still_there(experiment: Experiment, tmp_path: Path) -> None:
    audit = open_audit(experiment)
    models = ModelList.initial(audit.initial(), 2)
    found = deployed(experiment, tmp_path, audit).open_round().findings(Outcome(models, NOTHING), test=True)
    assert set(found.accuracy) == {0, 1}
    assert found.deployed_accuracy == pytest.approx(audit.result(models)["deployed_accuracy"])
    assert found.loss == {}, "no node has told it"
    assert found.traffic == {"sent": 0, "received": 0}
