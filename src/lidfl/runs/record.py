"""What is known of a round: one type, and one line of rounds.jsonl.

The server's own record and what others could find out about the round are put together here, and nowhere else is a
line written or read.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, astuple, dataclass, field
from math import isfinite
from operator import add
from pathlib import Path
from typing import Any, TypeAlias

from lidfl.errors import LidflError
from lidfl.files import fits, parse_json
from lidfl.protocol import Birth, Record

Json: TypeAlias = dict[str, Any]
"""A line of rounds.jsonl, decoded."""


@dataclass(frozen=True)
class Spent:
    """What a round took of all clients together; `costs` says how it is counted."""

    steps: int = 0
    """Gradient steps."""
    down: int = 0
    """Models that were sent to clients."""
    up: int = 0
    """Updates that clients sent."""
    ballots: int = 0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What can be told of a round beyond the server's record; models by id.

    A simulation knows all of it. A server knows its traffic, and the rest only where a test lets somebody tell.
    """

    honest: Mapping[int, bool | None] = field(default_factory=dict)
    """Of each new model, whether its updates are all honest; None if the server made it of other models."""
    loss: Mapping[int, float | None] = field(default_factory=dict)
    """Mean validation losses; None where one is not finite."""
    margin: int | None = None
    """How many more colluding ballots would have removed the favourite of honest voters; None without a vote."""
    accuracy: Mapping[int, float] = field(default_factory=dict)
    """Mean test accuracy of each model of the list, in rounds after which it is tested."""
    deployed_accuracy: float | None = None
    """Mean test accuracy of honest clients, each with the model that it would take."""
    traffic: Mapping[str, int] | None = None
    """Bytes sent and received, where there is a network."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """Messages that brought no reply, by reason."""
    late: tuple[int, ...] = ()
    """Clients that were asked and did not answer in time."""
    margin_estimate: int | None = None
    """The margin as far as a server can tell, which does not know who is honest."""
    roll: Mapping[str, int] | None = None
    """Where nodes join and leave: how many there are, the seats and the quota that follow, and at worst."""


@dataclass(frozen=True, kw_only=True)
class RoundRecord(Findings):
    """All that is known of a round; models by id."""

    round_index: int
    born: tuple[Birth, ...]
    votes: Mapping[int, int]
    """First choices by candidate."""
    removed: tuple[int, ...]
    rejected: Mapping[str, int]
    """How many replies were not used, by reason."""
    stood: int = 0
    """How many earlier ballots stood for voters who did not answer."""
    skipped: int = 0
    """How many rounds so far too few clients answered, so that they were played again."""
    spent: Spent | None = None
    """What it took of all clients; None in records of earlier versions."""
    seconds: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)
    """The seconds of the round by what they went into."""

    @classmethod
    def of(cls, record: Record, findings: Findings, **more: Any) -> "RoundRecord":
        """The server's record and what was found out, in one; `more` is what it took, and what was skipped."""
        return cls(**vars(record), **vars(findings), **more)

    @property
    def number(self) -> int:
        """The round as people count, from 1."""
        return self.round_index + 1

    def there(self, planned: int) -> int:
        """How many clients there were: those planned with, unless nodes join and leave."""
        return planned if self.roll is None else self.roll["clients"]

    def voters_of(self, drawn: int, planned: int) -> int:
        """How many were asked to vote: as many as are drawn, or all that there were."""
        return min(drawn or self.there(planned), self.there(planned))

    @property
    def tested(self) -> bool:
        """Whether the list was tested after the round."""
        return bool(self.accuracy)

    @property
    def best_accuracy(self) -> float:
        """The accuracy of the best model of the list, of a round that was tested."""
        return max(self.accuracy.values())

    @property
    def stayed(self) -> list[int]:
        """The candidates that are in the next list."""
        return [model for model in self.votes if model not in self.removed]

    def to_json(self) -> Json:
        """The record as a line: what nobody could tell is left out."""
        line: Json = {
            "round": self.round_index,
            "born": [self._birth_to_json(birth) for birth in self.born],
            "votes": _with_text_keys(self.votes),
            "removed": list(self.removed),
            "rejected": dict(self.rejected),
            "loss": _with_text_keys(self.loss),
        }
        line |= {name: value for name in ("stood", "skipped") if (value := getattr(self, name))}
        if self.margin is not None:
            line |= {"margin": self.margin}
        if self.tested:
            line |= {"accuracy": _with_text_keys(self.accuracy), "deployed_accuracy": self.deployed_accuracy}
        if self.traffic is not None:
            line |= {"bytes": dict(self.traffic), "refused": dict(self.refused), "late": list(self.late)}
        if self.margin_estimate is not None:
            line |= {"margin_estimate": self.margin_estimate}
        if self.spent is not None:
            line |= {"spent": asdict(self.spent)}
        if self.roll is not None:
            line |= {"roll": dict(self.roll)}
        return line | {"seconds": self.seconds, "phases": dict(self.phases)}

    def _birth_to_json(self, birth: Birth) -> Json:
        line: Json = {"model": birth.model, "parents": list(birth.parents), "clients": list(birth.clients)}
        return line | ({"honest": self.honest[birth.model]} if birth.model in self.honest else {})

    @classmethod
    def from_json(cls, line: Json) -> "RoundRecord":
        """Read a line back, in the form of today or in the earlier one."""
        born = line["born"] if "born" in line else _only_birth(line)
        return cls(
            round_index=line["round"],
            born=tuple(Birth(b["model"], tuple(b["parents"]), tuple(b["clients"])) for b in born),
            honest={b["model"]: b["honest"] for b in born if "honest" in b},
            votes=_with_numbers(line["votes"]),
            removed=tuple(line["removed"]),
            rejected=line["rejected"],
            stood=line.get("stood", 0),
            skipped=line.get("skipped", 0),
            margin=line.get("margin"),
            loss=_with_numbers(line.get("loss", {})),
            accuracy=_with_numbers(line.get("accuracy", {})),
            deployed_accuracy=line.get("deployed_accuracy"),
            traffic=line.get("bytes"),
            refused=line.get("refused", {}),
            late=tuple(line.get("late", ())),
            margin_estimate=line.get("margin_estimate"),
            spent=Spent(**line["spent"]) if "spent" in line else None,
            roll=line.get("roll"),
            seconds=line["seconds"],
            phases=line.get("phases", {}),
        )


def _only_birth(line: Json) -> list[Json]:
    """The birth that a line of an earlier version told without a list, with one of its parents; or none."""
    if "model" not in line:
        return []
    client, parent = line["client"], line["parent"]
    birth = {
        "model": line["model"],
        "parents": [parent] if parent >= 0 else [],
        "clients": client if isinstance(client, list) else [client],
    }
    return [birth | ({"honest": line["honest"]} if "honest" in line else {})]


def _with_text_keys(by_model: Mapping[int, Any]) -> Json:
    return {str(model): value for model, value in by_model.items()}


def _with_numbers(by_name: Mapping[str, Any]) -> dict[int, Any]:
    return {int(model): value for model, value in by_name.items()}


def finite(value: float) -> float | None:
    """A number as JSON has it: there is no infinity."""
    return float(value) if isfinite(value) else None


class RecordWriter:
    """Appends records to rounds.jsonl."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def append(self, record: RoundRecord) -> None:
        """Add a record."""
        self._file.write(json.dumps(record.to_json(), allow_nan=False) + "\n")

    def sync(self) -> None:
        """Force the records to disk, before the checkpoint that counts on them."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_records(path: Path) -> Iterator[RoundRecord]:
    """The records of a file, one by one, but for a last one that is still being written."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.endswith(b"\n"):
                    yield _read_line(path, number, line)
    except OSError as error:
        raise LidflError(f"cannot read {path}: {error.strerror}; run it again with overwrite=True") from None


def _read_line(path: Path, number: int, line: bytes) -> RoundRecord:
    try:
        record = RoundRecord.from_json(parse_json(line))
        if not fits(record, RoundRecord):
            raise ValueError("a field is of another type")
        return record
    except (ValueError, KeyError, TypeError, AttributeError):
        raise LidflError(
            f"{path}: line {number} is not the record of a round; run it again with overwrite=True"
        ) from None
