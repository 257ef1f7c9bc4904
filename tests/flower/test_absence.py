"""With real nodes too, whoever is absent does not decide, and the server's draws are its secret."""

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from lidfl import Experiment, LidflError, RunDirectory
from lidfl.flower import deployed
from lidfl.flower.answers import Answers
from lidfl.flower.codec import read_ask
from lidfl.flower.local.audit import open_audit
from lidfl.flower.server import Control, serve
from lidfl.protocol import ModelList, Replies, Request, Train
from lidfl.runs.server import Server
from lidfl.settings.world import draw_byzantine
from tests.command import lines_without_times
from tests.flower.nodes import grid_of, six

LIARS: dict[str, Any] = dict(byzantine_fraction=0.67, attack="sign_flip", vote_attack="worst", rounds=24)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not wait long for nodes to come back."""
    monkeypatch.setattr(deployed, "PAUSE", 0.0)


def play_with_absence(
    folder: Path, monkeypatch: pytest.MonkeyPatch, away: range, who: str, **settings: Any
) -> RunDirectory:
    """Six nodes, four of them liars; some of them are away for some rounds."""
    experiment = six(**LIARS | settings, out=str(folder / "run"))
    grid = grid_of(experiment, folder / "data")
    liars = draw_byzantine(experiment)
    gone = {1000 - c for c in range(6) if who == "all" or c not in liars}
    everyone, usual, tries = set(grid.online), Answers.answer, [0]

    def answer(self: Answers, request: Request) -> Replies:
        tries[0] += 1
        absent = request.round_index in away and (who == "honest" or tries[0] < 30)
        grid.online = everyone - gone if absent else set(everyone)
        return usual(self, request)

    monkeypatch.setattr(Answers, "answer", answer)
    serve(experiment, Control(), grid, open_audit)
    return RunDirectory(experiment.out)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("method", ["lidfl", "lidfl-ranked"])
def test_two_honest_of_six_may_be_away_for_three_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """It once took the accuracy from 0.88 to 0 for good."""
    settings = dict(method=method, rounds=24 if method == "lidfl" else 10)
    run = play_with_absence(tmp_path, monkeypatch, range(5, 8), "honest", **settings)
    assert any(line.get("stood") == 2 for line in lines_without_times(run.path))
    assert run.summary()["deployed_accuracy"] > 0.6


@pytest.mark.usefixtures("hurried")
def test_with_no_node_at_all_no_round_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = play_with_absence(tmp_path, monkeypatch, range(3, 5), "all", rounds=6)
    lines = lines_without_times(run.path)
    assert [line["round"] for line in lines] == list(range(6))
    assert lines[-1]["skipped"] > 5
    assert "too few answers" in (run.path / "server.log").read_text()


def drawn(experiment: Experiment, secret: int) -> list[int]:
    """Who is asked to train in each round, drawn from a secret."""
    server, models = Server(experiment, secret=secret), ModelList.initial(torch.zeros(650), experiment.list_size)
    requests = (next(server.round(models, round_index)) for round_index in range(experiment.rounds))
    return [client for request in requests if isinstance(request, Train) for client in request.offers]


def test_a_real_server_draws_from_a_secret_that_no_node_is_sent(tmp_path: Path) -> None:
    experiment = six(**LIARS | dict(rounds=6, model="tests.flower.own_model:model"), out=str(tmp_path / "run"))
    with_audit = six(**LIARS | dict(rounds=6), out=str(tmp_path / "audited"))
    grid = grid_of(with_audit, tmp_path / "data")
    serve(experiment, Control(), grid, None)
    file = tmp_path / "run" / "secret"
    secret = file.read_text().strip()
    assert file.stat().st_mode & 0o077 == 0
    assert all(secret not in repr(message.content) for message in grid.pushed)
    assert len(secret) > 20
    asked = [read_ask(m.content).client for m in grid.pushed if m.metadata.message_type == "train"]
    assert asked == drawn(experiment, int(secret))
    assert asked != drawn(experiment, experiment.seed), "who knows the seed knows nothing"
    assert RunDirectory(tmp_path / "run").secret() == int(secret), "a resumed server draws on"


@pytest.mark.parametrize("name", ["reach", "lookahead"])
def test_what_nodes_cannot_follow_yet_is_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    experiment = six(**LIARS | {name: 3}, out=str(tmp_path / "run"))
    with pytest.raises(LidflError, match=f"{name} is for simulations so far"):
        serve(experiment, Control(), grid_of(experiment, tmp_path / "data"), open_audit)
    assert not (tmp_path / "run").exists()
