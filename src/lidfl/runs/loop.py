"""The loop over rounds, the same for simulated clients and for real nodes."""

import logging
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from time import perf_counter
from typing import Protocol, TypeAlias

from lidfl.errors import LidflError
from lidfl.protocol import Answer, ModelList, Outcome, Replies, Request, Round
from lidfl.runs.costs import Tally
from lidfl.runs.directory import RunDirectory
from lidfl.runs.record import Findings, RecordWriter, RoundRecord
from lidfl.runs.server import Server
from lidfl.runs.state import State
from lidfl.settings.experiment import Experiment

log = logging.getLogger(__name__)

MOST_SKIPPED = 10_000
"""So many times in a row a round is tried."""


class OpenRound(Protocol):
    """One round with those who answer, from its first request to what can be told of it."""

    @property
    def seconds(self) -> Mapping[str, float]:
        """The time of this round so far, by what it went into."""
        ...

    def answer(self, request: Request) -> Replies:
        """Take a request to the clients and bring back their replies."""
        ...

    def findings(self, outcome: Outcome, *, test: bool) -> Findings:
        """What can be told of the round, and, to test, how good the list now is."""
        ...

    def wait(self, outcome: Outcome) -> None:
        """Let time pass after a round that too few answered, before it is played again."""
        ...


class Federation(Protocol):
    """Who answers the requests of a run."""

    def open_round(self, moment: int) -> OpenRound:
        """Begin a round; moments count rounds and those that too few answered."""
        ...


@dataclass(frozen=True)
class Progress:
    """What a callback is shown after every round: the settings, the list as it now is, and the round's record."""

    experiment: Experiment
    models: ModelList
    record: RoundRecord


class Signal(Enum):
    """What a callback returns to end a run after this round, with a summary; resumed, the run goes on."""

    STOP = "stop"

    def __repr__(self) -> str:
        return f"lidfl.{self.name}"


STOP = Signal.STOP

Observer: TypeAlias = Callable[[Progress], object]
"""Is shown every round; what it answers does not matter, unless it is STOP."""


def play(
    experiment: Experiment,
    server: Server,
    federation: Federation,
    start: Callable[[], ModelList],
    directory: RunDirectory,
    observe: Observer | None = None,
) -> State:
    """All rounds that are left, with checkpoints on the way and one more when the user interrupts."""
    state = directory.restore(experiment.device) or State(0, start())
    ended = ended_diverged(experiment, directory, state)
    if state.rounds_done < experiment.rounds and not ended:
        directory.unfinish()
    with closing(RecordWriter(directory.rounds_file)) as records:
        try:
            while state.rounds_done < experiment.rounds and not ended:
                if state.rounds_done % experiment.checkpoint_every == 0:
                    save(state, records, directory)
                following, record = play_round(experiment, server, federation, state)
                records.append(record)  # before the state: a record too many is cut off, one too few is lost
                state = following
                answer = observe(Progress(experiment, state.models, record)) if observe else None
                ended = answer is STOP or has_diverged(experiment, record)
        except KeyboardInterrupt:
            save(state, records, directory)
            raise
    return state


def save(state: State, records: RecordWriter, directory: RunDirectory) -> None:
    """Checkpoint a state, once the records that it counts on are on disk."""
    records.sync()
    directory.save(state)


def play_round(
    experiment: Experiment, server: Server, federation: Federation, state: State
) -> tuple[State, RoundRecord]:
    """One round, again until enough clients answer, and what is known of it."""
    began, skipped, tally = perf_counter(), state.skipped, Tally(experiment)
    while True:
        opened = federation.open_round(state.rounds_done + skipped)
        outcome = drive(server.round(state.models, state.rounds_done, skipped), tally.counting(opened.answer))
        if outcome.played:
            break
        skipped += 1
        say_skipped(state, skipped, outcome)
        opened.wait(outcome)
    protocol = perf_counter() - began - sum(opened.seconds.values())
    done = state.rounds_done + 1
    test = done % experiment.eval_every == 0 or done == experiment.rounds
    findings = opened.findings(outcome, test=test)
    phases = dict(opened.seconds) | {"protocol": protocol}
    took = dict(spent=tally.spent, seconds=perf_counter() - began, phases=phases)
    record = RoundRecord.of(outcome.record, findings, skipped=skipped, **took)
    return State(done, outcome.models, skipped), record


def say_skipped(state: State, skipped: int, outcome: Outcome) -> None:
    """Tell, once a round, that it was not counted, and end a run that nobody answers any more."""
    missing = outcome.record.rejected.get("missing", 0)
    if skipped == state.skipped + 1:
        log.warning("round %d: too few answers (%d missing), to be played again", state.rounds_done + 1, missing)
    if skipped - state.skipped >= MOST_SKIPPED:
        raise LidflError(
            f"round {state.rounds_done + 1} was tried {MOST_SKIPPED} times and too few clients answered"
        )


def drive(round_: Round, answer: Answer) -> Outcome:
    """Run a round to its end, taking every request to `answer` and its replies back."""
    request = next(round_)
    while True:
        replies = answer(request)
        try:
            request = round_.send(replies)
        except StopIteration as done:
            outcome: Outcome = done.value
            return outcome


def has_diverged(experiment: Experiment, record: RoundRecord) -> bool:
    """Whether a single model is beyond help: no client could train it to finite numbers."""
    unfit = record.rejected.get("not finite", 0)
    return not experiment.keeps_list and unfit == record.there(experiment.num_clients)


def ended_diverged(experiment: Experiment, directory: RunDirectory, state: State) -> bool:
    """Whether a run that is resumed had ended since its single model diverged."""
    if experiment.keeps_list or state.rounds_done == 0:
        return False
    *_, last = directory.records()
    return has_diverged(experiment, last)
