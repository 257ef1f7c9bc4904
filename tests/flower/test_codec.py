"""Requests and replies come back as they were, and nothing else is decoded."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

from lidfl.flower import codec
from lidfl.flower.codec import FIELDS, UPDATE, Ask, Reply, Unreadable, Work

LARGE = codec.INLINE // 4 + 1
"""Numbers of a model that travels as a record of its own."""


@pytest.mark.parametrize("dim", [2, LARGE])
def test_requests_and_replies_come_back_as_they_were(dim: int) -> None:
    vector = np.linspace(-2.25, 1.5, dim, dtype=np.float32)
    name = codec.content_hash(vector)
    ask = Ask("vote", 3, 2, (name, "other"), 4, Work(7, 10, 16, 0.01, 0.9), {name: vector})
    read = codec.read_ask(codec.pack_ask(ask))
    assert read.vectors[name].tolist() == vector.tolist()
    assert {**vars(read), "vectors": None} == {**vars(ask), "vectors": None}
    reply = Reply("trained", 1, 5, (2, 0), ("x",), vector)
    back = codec.read_reply(codec.pack_reply(reply), dim=dim)
    assert back.update is not None
    assert back.update.tolist() == vector.tolist()
    assert {**vars(back), "update": None} == {**vars(reply), "update": None}


@pytest.mark.parametrize("dim", [3, LARGE])
def test_a_model_that_is_not_what_its_hash_says_is_refused_by_the_client(dim: int) -> None:
    ask = Ask("vote", models=("a" * 64,), vectors={"a" * 64: np.zeros(dim, dtype=np.float32)})
    with pytest.raises(Unreadable, match="hash"):
        codec.read_ask(codec.pack_ask(ask))


@pytest.mark.parametrize("floats", [[], [bytes(4), bytes(4)], [bytes(7)], ["four"], bytes(4)])
def test_models_among_the_fields_that_are_none_are_not_decoded(floats: Any) -> None:
    content = codec.pack_ask(Ask("vote", vectors={"m": np.zeros(1, dtype=np.float32)}))
    content.config_records[FIELDS]["floats"] = floats
    with pytest.raises(Unreadable, match="wrong"):
        codec.read_ask(content)


def test_a_message_with_a_small_model_is_stored_as_three_objects() -> None:
    """Flower stores and fetches each by itself: message, records and fields; a large model adds three."""
    request = {
        dim: codec.pack_ask(Ask("vote", vectors={"m": np.zeros(dim, dtype=np.float32)})) for dim in (650, LARGE)
    }
    sealed = {dim: codec.in_envelope(content, "secret", 60.0) for dim, content in request.items()}
    assert [1 + len(get_all_nested_objects(sealed[dim])) for dim in (650, LARGE)] == [3, 6]


def fields(**changes: Any) -> ConfigRecord:
    entries: dict[str, Any] = dict(kind="ballot", parent=0, partition=0, ballot=[0], missing=[])
    return ConfigRecord(entries | changes)


def update(
    dtype: str = "float32", shape: Any = (2,), stype: str = codec.RAW, data: bytes = bytes(24)
) -> RecordDict:
    return RecordDict({FIELDS: fields(), UPDATE: ArrayRecord({"u": Array(dtype, shape, stype, data)})})


@pytest.mark.parametrize(
    "content",
    [
        RecordDict(),
        RecordDict({FIELDS: ArrayRecord()}),
        RecordDict({FIELDS: fields(kind=1)}),
        RecordDict({FIELDS: fields(parent=0.5)}),
        RecordDict({FIELDS: fields(partition=0.5)}),
        RecordDict({FIELDS: fields(ballot=[0.5])}),
        RecordDict({FIELDS: fields(ballot=[True])}),
        RecordDict({FIELDS: fields(ballot=[0] * 10_001)}),
        RecordDict({FIELDS: fields(missing="x")}),
        RecordDict({FIELDS: fields(), UPDATE: ConfigRecord({"u": 1})}),
        RecordDict({FIELDS: fields(), UPDATE: ArrayRecord({})}),
        update(dtype="float64"),
        update(dtype="object"),
        update(stype="numpy.ndarray"),
        update(stype="pickle"),
        update(shape=(10**12,)),
        update(shape=(1, 2)),
        update(data=bytes(23), shape=(1,)),
        update(data=bytes(7), shape=(-3,)),
        update(data=bytes(28), shape=(3,)),
        update(data=bytes(16 + 10**7), shape=(10**7 // 4,)),
    ],
)
def test_what_is_not_a_reply_is_never_decoded(content: RecordDict) -> None:
    with pytest.raises(Unreadable):
        codec.read_reply(content, dim=2)


def test_nobody_can_foretell_the_bytes_of_any_record_or_array() -> None:
    """Flower names an object by its bytes; who announced that name first, with other children, would block it."""
    vector = np.zeros(LARGE, dtype=np.float32)
    ask = Ask("vote", 1, 2, (codec.content_hash(vector),), vectors={codec.content_hash(vector): vector})
    asks, again = codec.pack_ask(ask), codec.pack_ask(ask)
    replies, others = (codec.pack_reply(Reply("trained", update=vector)) for _ in range(2))
    for one, other in ((asks, again), (replies, others)):
        assert not get_all_nested_objects(one).keys() & get_all_nested_objects(other).keys()
    assert codec.MODELS not in codec.pack_ask(Ask("vote")), "all know what an empty record looks like"


def test_what_goes_to_many_nodes_is_stored_once() -> None:
    vector = np.zeros(3, dtype=np.float32)
    salt = codec.new_salt()
    one, other = (codec.pack_vectors({"m": vector}, salt) for _ in range(2))
    assert one.object_id == other.object_id
