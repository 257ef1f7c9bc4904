"""What is refused before anything starts."""

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from lidfl import Experiment, LidflError, RunDirectory
from lidfl.cli.federation import FederationUp
from lidfl.flower.apps import read_app
from lidfl.flower.local.federation import LocalFederation
from lidfl.flower.local.playing import play_app, play_locally
from lidfl.flower.template import write_app
from tests.flower.nodes import six


def test_nodes_of_an_app_that_is_not_for_testing_are_not_told_to_attack(tmp_path: Path) -> None:
    write_app(tmp_path / "honest_app")
    app = read_app(tmp_path / "honest_app", {"out": str(tmp_path / "run")})
    with pytest.raises(LidflError, match=r"client_app\(task, testing=True\)"):
        play_app(app, {0: {"attack": "sign_flip"}})
    assert not (tmp_path / "run").exists()


def test_attacks_that_need_accomplices_are_refused_before_anything_starts(tmp_path: Path) -> None:
    for settings in (dict(attack="lie"), dict(vote_attack="coordinated")):
        with pytest.raises(LidflError, match=f"'{next(iter(settings.values()))}' needs accomplices"):
            play_locally(six(out=str(tmp_path / "run"), byzantine_fraction=0.5, **settings))
    assert not (tmp_path / "run").exists()


def test_a_directory_that_another_process_writes_is_left_as_it_is(tmp_path: Path) -> None:
    experiment = six(out=str(tmp_path / "run"))
    directory = RunDirectory(experiment.out)
    with directory.claimed(experiment, resume=False, overwrite=False):
        before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
        for choice in (dict(resume=True), dict(overwrite=True)):
            with (
                LocalFederation(experiment.with_settings(rounds=9)) as federation,
                pytest.raises(LidflError, match="written by another process"),
            ):
                federation.claim(**choice)
        assert {path: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_the_command_counts_nodes_and_byzantine_ones_exactly() -> None:
    for nodes in range(1, 40):
        for byzantine in range(nodes):
            settings = FederationUp(action="up", nodes=nodes, byzantine=byzantine).settings()
            assert Experiment.of(settings).num_byzantine == byzantine


def test_objects_that_other_processes_cannot_be_given_are_refused(tmp_path: Path) -> None:
    given = six(out=str(tmp_path / "run")).with_settings(attack=lambda own: -own)
    with pytest.raises(LidflError, match="attack is an object, which other processes cannot be given"):
        play_locally(given)
    assert not (tmp_path / "run").exists()
