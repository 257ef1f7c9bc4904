"""A node obeys its own server, in time, and once."""

from pathlib import Path
from time import time
from typing import Any

import pytest

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from flwr.app import Context, Message, RecordDict
from flwr.app.message import make_message
from flwr.app.metadata import Metadata

from lidfl import LidflError
from lidfl.flower import client_app, codec, signing
from lidfl.flower.codec import Ask, in_envelope
from lidfl.flower.fleet import Fleet
from lidfl.flower.local.shares import FiledTask, write_shares
from lidfl.flower.signing import Signer, Unsigned, Verifier, make_server_key, public_key_of, read_private_key
from lidfl.settings.world import load_data
from tests.flower.local_grid import LocalGrid
from tests.flower.nodes import QUICK, six


@pytest.fixture
def key(tmp_path: Path) -> Path:
    make_server_key(tmp_path / "server.key")
    return tmp_path / "server.key"


def public(key: Path) -> str:
    return key.with_name(key.name + ".pub").read_text().split()[1]


def request(key: Path | None, *, node: int = 7, group: str = "3", run: int = 1, ttl: float = 60.0) -> Message:
    content = in_envelope(codec.pack_ask(Ask("hello")), "secret", ttl)
    metadata = Metadata(run, "m", 1, node, "", "", time(), ttl, "query")
    message: Message = make_message(metadata=metadata, content=content)
    Signer(read_private_key(key) if key else None).sign(message, group)
    return message


def check(verifier: Verifier, message: Message, node: int = 7) -> None:
    verifier.check(message.metadata, message.content.object_id, node)


def changed(message: Message, **metadata: Any) -> Message:
    for name, value in metadata.items():
        message.metadata.__dict__[f"_{name}"] = value
    return message


def test_a_node_obeys_what_its_server_signed_for_it(key: Path) -> None:
    verifier = Verifier(public_key_of(public(key)))
    check(verifier, request(key))
    check(verifier, request(key, group="4"))
    check(verifier, request(key, group="hello"))


def test_what_is_signed_for_another_node_run_round_kind_or_time_is_refused(key: Path) -> None:
    verifier = Verifier(public_key_of(public(key)))
    with pytest.raises(Unsigned, match="for another node"):
        check(verifier, request(key, node=8))
    for other in (dict(run_id=2), dict(message_type="train"), dict(ttl=61.0)):
        with pytest.raises(Unsigned, match="not signed by the server"):
            check(verifier, changed(request(key), **other))
    another = request(key)
    another.metadata.group_id = another.metadata.group_id.replace("3.", "4.", 1)
    with pytest.raises(Unsigned, match="not signed by the server"):
        check(verifier, another)
    more = request(key)
    more.content["more"] = codec.pack_ask(Ask("vote"))[codec.FIELDS]
    with pytest.raises(Unsigned, match="not signed by the server"):
        check(verifier, more)


def test_what_nobody_or_another_key_signed_is_refused(key: Path, tmp_path: Path) -> None:
    verifier = Verifier(public_key_of(public(key)))
    make_server_key(tmp_path / "other.key")
    for message in (request(None), request(tmp_path / "other.key")):
        with pytest.raises(Unsigned, match="not signed by the server"):
            check(verifier, message)
    for group in ("", "3", "a.b.c", "3.nan.", "3..", "." * 50, "3.1e999."):
        with pytest.raises(Unsigned):
            check(verifier, changed(request(key), group_id=group))


def test_a_request_is_obeyed_once_and_not_when_it_is_old(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verifier = Verifier(public_key_of(public(key)))
    message = request(key)
    check(verifier, message)
    with pytest.raises(Unsigned, match="obeyed before"):
        check(verifier, message)
    later = request(key, group="9")
    check(verifier, later)
    with pytest.raises(Unsigned, match="its round is over"):
        check(verifier, request(key, group="8"))
    monkeypatch.setattr(signing, "time", lambda: time() + 60 + 61 + 2)
    with pytest.raises(Unsigned, match="too old"):
        check(verifier, message)
    check(verifier, request(key, group="9"))
    assert len(verifier.obeyed) == 1, "what is too old anyway need not be remembered"


def test_a_client_app_under_plain_flower_remembers_what_it_obeyed(key: Path, tmp_path: Path) -> None:
    experiment = six(out=str(tmp_path / "run"))
    write_shares(load_data(experiment), experiment.model, tmp_path)
    app = client_app(FiledTask(str(tmp_path)))
    config: dict[str, Any] = {"partition-id": 2, "num-partitions": 6, "server-key": public(key)}
    context = Context(1, 7, config, RecordDict(), {})
    message = request(key)
    assert codec.read_reply(app(message, context).content, dim=0).partition == 2
    with pytest.raises(Unsigned, match="obeyed before"):
        app(message, context)
    with pytest.raises(Unsigned):
        app(request(None), context)


def test_a_fleet_signs_what_it_sends(key: Path) -> None:
    verifier = Verifier(public_key_of(public(key)))
    seen = []

    def node(message: Message, _: Context) -> Message:
        seen.append(message.metadata.group_id)
        verifier.check(message.metadata, message.content.object_id, 7)
        return codec.reply_with(codec.pack_reply(codec.Reply("ballot", ballot=(0,))), message)

    grid = LocalGrid({7: (node, {})})
    fleet = Fleet(grid, QUICK, Signer(read_private_key(key)))
    assert list(dict(fleet.ask({7: codec.pack_ask(Ask("vote"))}, "evaluate", "5", most_bytes=100))) == [7]
    assert seen[0].startswith("5.")


def test_keys_that_are_none_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LidflError, match=r"copy it from the server's \.pub file"):
        public_key_of("nonsense")
    (tmp_path / "empty").write_text("")
    monkeypatch.setenv(signing.VARIABLE, str(tmp_path / "empty"))
    with pytest.raises(LidflError, match="LIDFL_SERVER_KEY names no key"):
        Signer.from_environment()
