"""What travels between a server and its nodes: only what a node lacks."""

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from flwr.app import Context, Message, RecordDict

from lidfl.flower import codec
from lidfl.flower.local.audit import open_audit
from lidfl.flower.server import Control, serve
from lidfl.flower.worker import Worker
from tests.command import lines_without_times
from tests.flower.local_grid import Handle
from tests.flower.nodes import PLURALITY, grid_of, six


def test_only_new_models_are_sent_and_none_is_judged_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = six(**PLURALITY, out=str(tmp_path / "run"))
    grid = grid_of(experiment, tmp_path / "data")
    judged: Counter[tuple[int, str]] = Counter()
    judge = Worker.loss

    def counted(self: Worker, vector: codec.Vector) -> float:
        judged[self.ask.client, codec.content_hash(vector)] += 1
        return judge(self, vector)

    monkeypatch.setattr(Worker, "loss", counted)
    serve(experiment, Control(), grid, open_audit)
    assert max(judged.values()) == 1
    votes = [codec.read_ask(m.content) for m in grid.pushed if m.metadata.message_type == "evaluate"]
    trains = [codec.read_ask(m.content) for m in grid.pushed if m.metadata.message_type == "train"]
    assert all(len(ask.vectors) == 1 for ask in votes if ask.round_index > 0), "the one new candidate"
    assert not any(ask.vectors for ask in trains if ask.round_index > 0)


def test_the_bytes_of_a_round_are_what_the_docs_say(tmp_path: Path) -> None:
    """A vote sends c models to each of m clients; a training brings one update back."""
    experiment = six(**PLURALITY, out=str(tmp_path / "run"))
    serve(experiment, Control(), grid_of(experiment, tmp_path / "data"), open_audit)
    model = 4 * 650
    for line in lines_without_times(tmp_path / "run")[1:]:
        assert 6 * model < line["bytes"]["sent"] < 6 * model + 7 * 600
        assert model < line["bytes"]["received"] < model + 7 * 200


def test_a_client_that_lost_its_cache_says_so_and_is_sent_it_again(tmp_path: Path) -> None:
    experiment = six(**PLURALITY, out=str(tmp_path / "run"))
    plain = six(**PLURALITY, out=str(tmp_path / "plain"))
    serve(plain, Control(), grid_of(plain, tmp_path / "data"), open_audit)
    grid = grid_of(experiment, tmp_path / "data")

    def forgetful(app: Handle) -> Handle:
        def handle(message: Message, context: Context) -> Message | None:
            context.state = RecordDict()
            return app(message, context)

        return handle

    grid.apps = {node: forgetful(app) for node, app in grid.apps.items()}
    serve(experiment, Control(), grid, open_audit)
    assert (tmp_path / "run" / "models.safetensors").read_bytes() == (
        tmp_path / "plain" / "models.safetensors"
    ).read_bytes()
