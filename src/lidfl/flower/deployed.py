"""The nodes of a fleet as the federation of a run, and the auditor that a test may have."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from time import sleep
from typing import Protocol, TypeAlias

from lidfl.data.shards import FederatedData
from lidfl.flower.answers import Answers
from lidfl.flower.complaints import Complaints
from lidfl.flower.exchange import LATE
from lidfl.protocol import Canonical, ModelList, Outcome, Replies, Request
from lidfl.runs.directory import Summary
from lidfl.runs.record import Findings
from lidfl.runs.stopwatch import Stopwatch
from lidfl.runs.telling import estimate_margin
from lidfl.settings.experiment import Experiment
from lidfl.types import Client, Parameters

PAUSE = 5.0
"""Seconds until a round that too few answered is tried again."""


class Audit(Protocol):
    """What somebody who holds all data, as in a test, can tell a server. A real server has nobody to ask."""

    @property
    def data(self) -> FederatedData:
        """What all clients hold."""
        ...

    def initial(self) -> Parameters:
        """The model to begin with."""
        ...

    def canonical(self) -> Canonical | None:
        """The form that models are brought into, if they are to be."""
        ...

    def findings(self, outcome: Outcome, *, test: bool) -> Findings:
        """What there is to tell of a round, and, to test, how good the list now is."""
        ...

    def result(self, models: ModelList) -> Summary:
        """How good the final list is."""
        ...


OpenAudit: TypeAlias = Callable[[Experiment], Audit]
"""Begins the audit of a run."""


class Deployed:
    """The nodes of a fleet, ready to answer the rounds of a run."""

    def __init__(self, answers: Answers, audit: Audit | None, complaints: Complaints) -> None:
        self.answers = answers
        self.audit = audit
        self.complaints = complaints

    def open_round(self, _moment: int = 0) -> "DeployedRound":
        """Begin a round."""
        return DeployedRound(self.answers, self.audit, self.complaints)


class DeployedRound:
    """One round with the nodes of a fleet."""

    def __init__(self, answers: Answers, audit: Audit | None, complaints: Complaints) -> None:
        self.answers = answers
        self.audit = audit
        self.complaints = complaints
        self.stopwatch = Stopwatch()
        self._before = answers.fleet.tally()
        self._late_before = {node: seen.refused[LATE] for node, seen in answers.fleet.conduct.items()}

    @property
    def seconds(self) -> Mapping[str, float]:
        """The time of this round so far, by the kind of request that it went into."""
        return self.stopwatch.seconds

    def answer(self, request: Request) -> Replies:
        """The replies of the nodes that are there."""
        with self.stopwatch.timed(type(request).__name__.lower()):
            return self.answers.answer(request)

    def findings(self, outcome: Outcome, *, test: bool) -> Findings:
        """How much went over the network in this round, and what an auditor found.

        Losses are left out, the auditor's too: no node has told its own, and if it had, why believe it?
        """
        self._complain(outcome, succeeded=bool(outcome.record.born))
        found = self.audit.findings(outcome, test=test) if self.audit else Findings()
        tally = self.answers.fleet.tally().since(self._before)
        traffic = {"sent": tally.sent, "received": tally.received}
        votes, seats, roll = outcome.record.votes, len(outcome.models), self.answers.members.roll
        assumed = self.answers.settings.assumed_honest
        return replace(
            found,
            loss={},
            traffic=traffic,
            refused=tally.refused,
            late=self._late(),
            margin_estimate=estimate_margin(votes, seats, assumed) if any(votes.values()) else None,
            roll=roll.numbers() if roll else None,
        )

    def wait(self, outcome: Outcome) -> None:
        """Give nodes time to come back; those that are there and failed need none, but may have said why."""
        if not self._complain(outcome, succeeded=False):
            sleep(PAUSE)

    def _complain(self, outcome: Outcome, *, succeeded: bool) -> Mapping[Client, str]:
        """Let it be heard why nodes have failed."""
        failures, settings = self._failures(outcome), self.answers.settings
        self.complaints.count(settings.num_clients, settings.assumed_honest)
        self.complaints.hear(failures, succeeded=succeeded)
        return failures

    def _late(self) -> tuple[Client, ...]:
        """The clients that did not answer in time, in this round."""
        conduct, before = self.answers.fleet.conduct, self._late_before
        members = self.answers.members.node_of.items()
        late = [c for c, node in members if node in conduct and conduct[node].refused[LATE] > before.get(node, 0)]
        return tuple(sorted(late))

    def _failures(self, outcome: Outcome) -> dict[Client, str]:
        """Why each of those who were to train did not: in the node's words, or the protocol's."""
        conduct = self.answers.fleet.conduct
        told = ", ".join(reason for reason in outcome.record.rejected if reason != "missing")
        said = {client: conduct[node].reason or told for client, node in self.answers.trainers.items()}
        return {client: reason for client, reason in said.items() if reason and not reason.startswith(LATE)}
