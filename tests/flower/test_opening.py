"""Whatever a node sends, opening it costs that reply and nothing else."""

import json
import random
from collections import Counter

import numpy as np
import pytest

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.app.message import make_message
from flwr.app.message.arraychunk import ArrayChunk
from flwr.app.metadata import Metadata
from flwr.supercore.inflatable.inflatable_object import (
    add_header_to_object_body,
    get_object_tree,
)
from flwr.superlink.grid.http_grid import HttpGrid

from lidfl.flower import codec
from lidfl.flower.codec import Reply, in_envelope
from lidfl.flower.exchange import authentic
from lidfl.flower.opening import Posted, Refused, announced, unfolded
from tests.flower.posted import Runtime, packed

MODEL = 4 * 650


@pytest.fixture(autouse=True)
def a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpGrid, "run", property(lambda self: self.__dict__["_run"]))


def reply(content: RecordDict, to: str = "asked") -> Message:
    metadata = Metadata(1, "", 7, 1, to, "", 1e9, 60.0, "evaluate")
    message: Message = make_message(metadata=metadata, content=content)
    return message


def trained(secret: str = "s") -> RecordDict:
    content = codec.pack_reply(Reply("trained", update=np.arange(650, dtype=np.float32)))
    return in_envelope(content, secret, 60.0)


def opened(runtime: Runtime) -> codec.Reply:
    """What the server makes of the one reply that is there."""
    (parcel,) = announced(runtime.grid(), ["asked"])
    while (message := parcel.unpack(MODEL)) is None:
        pass
    return codec.read_reply(authentic(message, "s"), dim=650)


def test_an_honest_reply_arrives_as_it_was_and_the_superlink_may_forget_it() -> None:
    runtime = Runtime()
    runtime.post("asked", message := reply(trained()))
    update = opened(runtime).update
    assert update is not None
    assert update.tolist() == list(range(650))
    assert runtime.confirmed == [message.object_id]


def spoil(content: bytes, rng: random.Random) -> bytes:
    """An object's bytes, spoilt in one of many ways."""
    head, _, body = content.partition(b"\0")
    kinds = [b"Message", b"RecordDict", b"ConfigRecord", b"MetricRecord", b"Array", b"ArrayChunk", b"Nothing"]
    ways = [
        lambda: rng.randbytes(rng.randrange(60)),
        lambda: content[: rng.randrange(len(content))],
        lambda: bytes(b ^ (rng.random() < 0.02) * rng.randrange(256) for b in content),
        lambda: head + b"\0" + rng.randbytes(20),
        lambda: head + b"\0" + b"[" * 20_000,
        lambda: head + b"\0" + b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
        lambda: rng.choice(kinds) + b"  20\0" + rng.randbytes(20),
        lambda: head + b"\0" + body + rng.randbytes(rng.randrange(1, 9)),
    ]
    return rng.choice(ways)()


def test_thousands_of_spoilt_replies_raise_nothing_but_refusals() -> None:
    rng = random.Random(0)
    found: Counter[str] = Counter()
    message = reply(trained())
    tree, whole = get_object_tree(message), packed(message)
    for _ in range(2_500):
        runtime = Runtime()
        name, content = rng.choice(list(whole.items()))
        assert content is not None
        runtime.posts, runtime.objects = [("asked", tree)], whole | {name: spoil(content, rng)}
        try:
            opened(runtime)
            found["read"] += 1
        except (Refused, codec.Unreadable) as refusal:
            found[str(refusal)] += 1
    assert found["garbage"] > 1_200
    assert found.keys() <= {"read", "garbage", "forged", "failed", "too large", "wrong type", "wrong shape"}


@pytest.mark.parametrize(
    "body",
    [b"\x0a\xff\xff\xff\xff\x0f" + bytes(14), b"\x0b" * 20, b"[" * 10_000, b"\xff" * 20, b""],
    ids=["a length beyond the end", "groups without end", "deep", "no protobuf", "nothing"],
)
@pytest.mark.parametrize("kind", ["Message", "RecordDict", "ConfigRecord", "MetricRecord", "ArrayRecord", "Array"])
def test_twenty_malformed_bytes_in_any_kind_of_object_are_one_refusal(kind: str, body: bytes) -> None:
    runtime = Runtime()
    runtime.post_raw("asked", [f"{kind}  {len(body)}".encode() + b"\0" + body])
    with pytest.raises(Refused, match="garbage"):
        opened(runtime)


def test_a_bad_reply_leaves_the_others_of_the_same_look_alone() -> None:
    runtime = Runtime()
    runtime.post_raw("bad", [b"Message  3\0\xff\xff\xff"])
    runtime.post("good", reply(trained(), to="good"))
    bad, good = announced(runtime.grid(), ["bad", "good"])
    with pytest.raises(Refused):
        bad.unpack(MODEL)
    while (message := good.unpack(MODEL)) is None:
        pass
    assert codec.read_reply(authentic(message, "s"), dim=650).kind == "trained"


def test_an_instruction_that_a_node_sends_to_the_server_is_no_reply() -> None:
    """Flower hands it to whoever looks for replies next."""
    runtime = Runtime()
    runtime.post("", reply(trained(), to=""))
    runtime.post("another", reply(trained(), to="another"))
    assert announced(runtime.grid(), ["asked"]) == []
    assert not runtime.pulled


def test_what_is_too_large_or_has_too_many_parts_is_not_fetched() -> None:
    runtime = Runtime()
    many = RecordDict({f"record {number}": ConfigRecord({"x": number}) for number in range(3_000)})
    runtime.post("asked", reply(many))
    with pytest.raises(Refused, match="too large"):
        opened(runtime)
    assert not runtime.pulled
    huge = codec.pack_reply(Reply("trained", update=np.zeros(10_000_000, dtype=np.float32)))
    runtime.post("asked", reply(huge))
    with pytest.raises(Refused, match="too large"):
        opened(runtime)
    assert sum(len(runtime.objects[name] or b"") for name in runtime.pulled) < 6_000_000


def test_an_array_that_names_one_piece_a_million_times_is_not_assembled() -> None:
    piece = ArrayChunk(memoryview(bytes(1_000)))
    array = Array("float32", (250,), codec.RAW, bytes(1_000))
    body = json.loads(array.deflate().partition(b"\0")[2]) | {"arraychunk_ids": [0] * 1_000}
    bomb = add_header_to_object_body(json.dumps(body).encode(), array)
    assert unfolded({"a": bomb, "p": piece.deflate()}) >= 1_000_000
    assert unfolded({"a": array.deflate(), "p": piece.deflate()}) < 1_100
    runtime = Runtime()
    content = trained()
    content["more"] = ArrayRecord({str(number): array for number in range(50)})
    runtime.post("asked", reply(content))
    with pytest.raises(Refused, match="too large"):
        opened(runtime)


def test_a_reply_that_is_announced_and_never_uploaded_waits_beside_the_others() -> None:
    runtime = Runtime()
    message = reply(trained())
    held_back = message.object_id
    runtime.post("asked", message, {held_back: None})
    (parcel,) = announced(runtime.grid(), ["asked"])
    for _ in range(20):
        assert parcel.unpack(MODEL) is None
    runtime.objects[held_back] = message.deflate()
    while (whole := parcel.unpack(MODEL)) is None:
        pass
    assert authentic(whole, "s")


def test_a_look_takes_a_few_objects_of_a_reply_and_then_turns_to_the_next() -> None:
    runtime = Runtime()
    runtime.post("asked", reply(trained()))
    (parcel,) = announced(runtime.grid(), ["asked"])
    assert isinstance(parcel, Posted)
    assert parcel.unpack(MODEL) is None
    assert len(runtime.pulled) == 4
