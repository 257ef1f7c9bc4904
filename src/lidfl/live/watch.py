"""What has been seen of a run so far: its rounds, its nodes, and what somebody should look at."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from threading import Lock
from typing import Any, TypeAlias

from lidfl.runs.loop import Progress
from lidfl.runs.record import Json, RoundRecord

MISBEHAVIOUR = ("garbage", "too large")
"""Reasons to refuse a reply that no slow or broken node gives. `forged` is none: that is another's doing."""
MOST_ALERTS = 200
"""So many alerts are kept."""


@dataclass(frozen=True)
class NodeView:
    """A node as the page shows it."""

    client: int
    state: str
    """well, late, failing, misbehaving or away."""
    seconds: float = 0.0
    """What its last reply took."""
    answered: int = 0
    asked: int = 0
    sent: int = 0
    received: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""
    """Why it last failed, in its own words: shown as text, and never trusted."""
    credit: float = 1.0
    """The part of its patience that others still have with it."""


@dataclass(frozen=True)
class Alert:
    """Something that somebody should look at."""

    round: int
    text: str


Nodes: TypeAlias = Callable[[], list[NodeView]]


def no_nodes() -> list[NodeView]:
    """A simulation has no nodes to show."""
    return []


class Watch:
    """Remembers rounds; asked by other threads while the run goes on."""

    def __init__(self, title: str, rounds: int, voters: int, nodes: Nodes = no_nodes) -> None:
        self.title = title
        self.rounds = rounds
        self.voters = voters
        """How many ballots the last vote had asked for."""
        self.nodes = nodes
        self.records: list[Json] = []
        self.alerts: list[Alert] = []
        self.last: RoundRecord | None = None
        self.totals: dict[str, int] = {}
        self._lock = Lock()

    def observe(self, progress: Progress) -> None:
        """Take note of a round."""
        record = progress.record
        experiment = progress.experiment
        with self._lock:
            if record.roll is not None:
                self.voters = record.voters_of(experiment.voters, experiment.num_clients)
            self.alerts = [*self.alerts, *self._alerts(record)][-MOST_ALERTS:]
            self.records.append(record.to_json() | {"list": list(progress.models.ids)})
            self.last = record
            for reason, count in {**record.rejected, **record.refused}.items():
                self.totals[reason] = self.totals.get(reason, 0) + count

    def _alerts(self, record: RoundRecord) -> Iterator[Alert]:
        margin, before = margin_of(record), margin_of(self.last)
        if margin is not None and before is not None and margin < before:
            yield Alert(record.number, f"the margin has shrunk from {before} to {margin}")
        yield from self._roll_alerts(record)
        missing = self.voters - sum(record.votes.values())
        if record.votes and missing > 0:
            yield Alert(record.number, f"{missing} of {self.voters} ballots are missing")
        for reason in MISBEHAVIOUR:
            if record.refused.get(reason):
                yield Alert(record.number, f"a node misbehaves: {record.refused[reason]} {reason}")
        if record.refused.get("forged"):
            yield Alert(
                record.number, f"somebody answers in another node's name: {record.refused['forged']} forged"
            )
        if record.late:
            yield Alert(record.number, f"late: {', '.join(f'client {client}' for client in record.late)}")

    def _roll_alerts(self, record: RoundRecord) -> Iterator[Alert]:
        """The roll has changed; and what it means if newcomers are all malicious."""
        roll, before = record.roll, self.last.roll if self.last else None
        if roll is None or roll == before or not (roll["joined"] or roll["left"]):
            return
        changed = f"the roll has {roll['clients']} nodes, {roll['joined']} joined and {roll['left']} left"
        if roll["margin_at_worst"] >= 0:
            yield Alert(record.number, f"{changed}; the guarantee holds even if all newcomers are malicious")
        else:
            lost = (
                f"if all newcomers are malicious, honest ballots are {-roll['margin_at_worst']} short of the quota"
            )
            yield Alert(record.number, f"{changed}; {lost}, and good models can be voted out")

    def state(self, since: int = 0) -> Json:
        """All that the page needs; of the rounds only those from a number on."""
        with self._lock:
            rounds: list[Any] = self.records[max(since, 0) :]
            alerts = [asdict(alert) for alert in self.alerts]
        nodes = [asdict(node) for node in self.nodes()]
        return {
            "title": self.title,
            "of": self.rounds,
            "voters": self.voters,
            "rounds": rounds,
            "alerts": alerts,
            "nodes": nodes,
        }


def margin_of(record: RoundRecord | None) -> int | None:
    """A round's margin, or what a server takes it to be."""
    if record is None:
        return None
    return record.margin if record.margin is not None else record.margin_estimate
