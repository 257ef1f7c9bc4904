"""The nodes of a fleet as the federation of a run, and the auditor that a test may have."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from time import sleep
from typing import Protocol, TypeAlias

from lidfl.data.shards import FederatedData
from lidfl.flower.answers import Answers
from lidfl.protocol import Canonical, ModelList, Outcome, Replies, Request
from lidfl.runs.directory import Summary
from lidfl.runs.record import Findings
from lidfl.runs.stopwatch import Stopwatch
from lidfl.settings.experiment import Experiment
from lidfl.types import Parameters

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

    def __init__(self, answers: Answers, audit: Audit | None) -> None:
        self.answers = answers
        self.audit = audit

    def open_round(self, _moment: int = 0) -> "DeployedRound":
        """Begin a round."""
        return DeployedRound(self.answers, self.audit)

    def wait(self) -> None:
        """Give nodes time to come back."""
        sleep(PAUSE)


class DeployedRound:
    """One round with the nodes of a fleet."""

    def __init__(self, answers: Answers, audit: Audit | None) -> None:
        self.answers = answers
        self.audit = audit
        self.stopwatch = Stopwatch()
        self._before = answers.fleet.tally()

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
        found = self.audit.findings(outcome, test=test) if self.audit else Findings()
        tally = self.answers.fleet.tally().since(self._before)
        traffic = {"sent": tally.sent, "received": tally.received}
        return replace(found, loss={}, traffic=traffic, refused=tally.refused)
