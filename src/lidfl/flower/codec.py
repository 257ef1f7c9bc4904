"""Requests and replies as Flower's records.

A model is named by the hash of its content and travels as bare bytes: there is nothing to parse, let alone to
unpickle, and bytes of the wrong length are never decoded. The server accepts no reply beyond a size that it sets; a
client checks that each model is the one that its hash names.

Every record and every array carries some random bytes, its salt. Flower stores a message as objects named by their
hashes, and refuses a message if one of its objects was announced before with other children: whoever could foretell
an object's bytes could keep the message that needs it from being sent.
"""

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float32]
"""A model or an update, one flat vector."""

FIELDS, MODELS, UPDATE = "lidfl", "lidfl.models", "lidfl.update"
"""The records of a message: its fields, the models that come with it, the update that comes back.

As few as can be: Flower stores and fetches every record by itself, and that is what a round takes longest for.
"""
SECRET, DEADLINE = "secret", "deadline"
"""Fields of every request: what its reply echoes, and the seconds that the client has."""
RAW = "lidfl.float32"
"""Little-endian floats, nothing else."""
INLINE = 32 * 1024
"""Bytes up to which models travel among the fields: a record of their own is more work, but is stored once."""
SALT = 16
"""Random bytes before the floats of an array."""
MOST_NAMES = 10_000
"""So many positions of a ballot, or hashes of models, a message may list."""

T = TypeVar("T")


class Unreadable(ValueError):
    """Why a message is not decoded, in a few words."""


@dataclass(frozen=True)
class Work:
    """What a client needs to know to train as the experiment says."""

    seed: int = 0
    steps: int = 0
    batch_size: int = 0
    learning_rate: float = 0.0
    momentum: float = 0.0
    judge: str = "loss"
    """How it judges a model, unless its task has a loss of its own."""
    deploy: str = "best"
    """What it makes of the list for itself."""
    rounds: int = 0
    """How many rounds there are in all."""


@dataclass(frozen=True)
class Ask:
    """A request as one client sees it."""

    kind: str
    """hello, train, choose or vote."""
    round_index: int = 0
    client: int = 0
    """The number that the server knows the client by; its random choices follow from it."""
    models: tuple[str, ...] = ()
    """Hashes of the models in question; positions in the reply are places in this order."""
    ranks: int = 1
    work: Work = Work()
    vectors: Mapping[str, Vector] = field(default_factory=dict)
    """Those of the models that the client is taken to lack."""


@dataclass(frozen=True)
class Reply:
    """What one client sends back."""

    kind: str
    """hello, trained, ballot or missing."""
    parent: int = 0
    """Of a training: where in the request's models the trained one stands."""
    partition: int = 0
    """Of a hello: which share of the data the client says it has."""
    ballot: tuple[int, ...] = ()
    missing: tuple[str, ...] = ()
    """Hashes of models that the client needs and does not have."""
    update: Vector | None = None


def content_hash(vector: Vector) -> str:
    """The name of a model: the same bytes have the same name everywhere."""
    return hashlib.sha256(_bytes(vector)).hexdigest()


def _bytes(vector: Vector) -> bytes:
    return np.ascontiguousarray(vector, dtype="<f4").tobytes()


def new_salt() -> bytes:
    """Bytes that nobody can foretell."""
    return secrets.token_bytes(SALT)


def to_array(vector: Vector, salt: bytes | None = None) -> Array:
    """A vector as Flower carries it; with the same salt, equal vectors are stored and sent once."""
    return Array("float32", (len(vector),), RAW, (salt or new_salt()) + _bytes(vector))


def from_array(array: Array, most: int) -> Vector:
    """A vector of at most so many numbers, or `Unreadable`; takes no more memory than what has arrived."""
    if (array.dtype, array.stype) != ("float32", RAW):
        raise Unreadable("wrong type")
    length = len(array.data) - SALT
    if length > 4 * most:
        raise Unreadable("too large")
    if length < 0 or array.shape != (length // 4,):
        raise Unreadable("wrong shape")
    return from_bytes(memoryview(array.data)[SALT:])


def from_bytes(data: bytes | memoryview) -> Vector:
    """The vector whose numbers these are."""
    if len(data) % 4:
        raise Unreadable("wrong shape")
    return np.frombuffer(data, dtype="<f4").astype(np.float32)


def pack_ask(ask: Ask, salt: bytes | None = None) -> RecordDict:
    """A request as records; the record of models is left out if it would be empty, since all know an empty one."""
    inline = {name: _bytes(vector) for name, vector in ask.vectors.items()}
    if sum(map(len, inline.values())) > INLINE:
        inline = {}
    entries: dict[str, Any] = {
        "kind": ask.kind,
        "round_index": ask.round_index,
        "client": ask.client,
        "models": list(ask.models),
        "ranks": ask.ranks,
        "inline": list(inline),
        "floats": list(inline.values()),
        "salt": new_salt(),
    }
    records = RecordDict({FIELDS: ConfigRecord(entries | asdict(ask.work))})
    if len(inline) < len(ask.vectors):
        records[MODELS] = pack_vectors(ask.vectors, salt)
    return records


def pack_vectors(vectors: Mapping[str, Vector], salt: bytes | None = None) -> ArrayRecord:
    """Vectors by name as a record."""
    return ArrayRecord({name: to_array(vector, salt) for name, vector in vectors.items()})


def read_ask(content: RecordDict) -> Ask:
    """The request in a message, with the models that came with it checked against their hashes."""
    record = _record(content, FIELDS, ConfigRecord)
    arrays = _record(content, MODELS, ArrayRecord) if MODELS in content else ArrayRecord()
    vectors = {name: from_array(array, most=len(array.data)) for name, array in arrays.items()}
    names, floats = _listed(record, "inline", str), _listed(record, "floats", bytes)
    if len(names) != len(floats):
        raise Unreadable("wrong shape")
    vectors |= {name: from_bytes(data) for name, data in zip(names, floats, strict=True)}
    if any(content_hash(vector) != name for name, vector in vectors.items()):
        raise Unreadable("a model is not what its hash says")
    return Ask(
        kind=_typed(record, "kind", str),
        round_index=_typed(record, "round_index", int),
        client=_typed(record, "client", int),
        models=_listed(record, "models", str),
        ranks=_typed(record, "ranks", int),
        work=_read_work(record),
        vectors=vectors,
    )


def _read_work(record: ConfigRecord) -> Work:
    return Work(
        seed=_typed(record, "seed", int),
        steps=_typed(record, "steps", int),
        batch_size=_typed(record, "batch_size", int),
        learning_rate=_typed(record, "learning_rate", float),
        momentum=_typed(record, "momentum", float),
        judge=_typed(record, "judge", str),
        deploy=_typed(record, "deploy", str),
        rounds=_typed(record, "rounds", int),
    )


def pack_reply(reply: Reply) -> RecordDict:
    """A reply as records."""
    entries: dict[str, Any] = {
        "kind": reply.kind,
        "parent": reply.parent,
        "partition": reply.partition,
        "ballot": list(reply.ballot),
        "missing": list(reply.missing),
        "salt": new_salt(),
    }
    records = RecordDict({FIELDS: ConfigRecord(entries)})
    if reply.update is not None:
        records[UPDATE] = ArrayRecord({"u": to_array(reply.update)})
    return records


def read_reply(content: RecordDict, dim: int) -> Reply:
    """The reply in a message, if it has the form of one and no more numbers than a model has."""
    record = _record(content, FIELDS, ConfigRecord)
    update = None
    if UPDATE in content:
        arrays = _record(content, UPDATE, ArrayRecord)
        if list(arrays) != ["u"]:
            raise Unreadable("wrong shape")
        update = from_array(arrays["u"], most=dim)
    return Reply(
        kind=_typed(record, "kind", str),
        parent=_typed(record, "parent", int),
        partition=_typed(record, "partition", int),
        ballot=_listed(record, "ballot", int),
        missing=_listed(record, "missing", str),
        update=update,
    )


def in_envelope(content: RecordDict, secret: str, deadline: float) -> RecordDict:
    """A request with what each carries besides its content."""
    fields = ConfigRecord({**content.config_records[FIELDS], SECRET: secret, DEADLINE: deadline})
    return RecordDict({**content, FIELDS: fields})


def reply_with(content: RecordDict, request: Message) -> Message:
    """A client's reply, with the secret of the request that it answers."""
    content.config_records[FIELDS][SECRET] = secret_of(request)
    return Message(content, reply_to=request)


def secret_of(message: Message) -> str:
    """The secret that a message carries."""
    return str(_typed(_record(message.content, FIELDS, ConfigRecord), SECRET, str))


def time_limit(request: Message) -> float:
    """How many seconds a client has for a request."""
    return float(_typed(_record(request.content, FIELDS, ConfigRecord), DEADLINE, float))


def size_of(content: RecordDict) -> int:
    """How many bytes a message's models, names and numbers take, near enough."""
    arrays = (array for record in content.array_records.values() for array in record.values())
    entries = (value for record in content.config_records.values() for value in record.values())
    return sum(len(array.data) for array in arrays) + sum(map(_length, entries))


def _length(value: object) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    return sum(map(_length, value)) if isinstance(value, list) else 8


def _record(content: RecordDict, name: str, kind: type[T]) -> T:
    found = content.get(name)
    if not isinstance(found, kind):
        raise Unreadable("wrong type")
    return found


def _typed(record: ConfigRecord, name: str, kind: Any) -> Any:
    value = record.get(name)
    if type(value) is not kind:
        raise Unreadable("wrong type")
    return value


def _listed(record: ConfigRecord, name: str, kind: type[T]) -> tuple[T, ...]:
    values: Sequence[Any] = _typed(record, name, list)
    if len(values) > MOST_NAMES:
        raise Unreadable("too large")
    if any(type(value) is not kind for value in values):
        raise Unreadable("wrong type")
    return tuple(values)
