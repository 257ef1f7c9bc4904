"""Runs an experiment in process, from its settings to its run directory."""

import logging
import subprocess
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import cache, partial
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lidfl.checkpoint import State
from lidfl.client import flushing_denormals
from lidfl.config import Experiment
from lidfl.protocol import Answer, Birth, ModelList, Outcome, Record, drive
from lidfl.rundir import Line, Records, RunDirectory, births
from lidfl.server import Server
from lidfl.simulator import Simulator
from lidfl.types import Client

log = logging.getLogger(__name__)

Summary = dict[str, Any]


@dataclass(frozen=True)
class Progress:
    """What an observer is shown after every round."""

    experiment: Experiment
    models: ModelList
    line: Line


Observer = Callable[[Progress], None]


class Federation(Protocol):
    """Who answers the requests of a run, and what it can tell of a round beyond the server's record."""

    @property
    def answer(self) -> Answer:
        """Takes a request to the clients and brings back their replies."""
        ...

    @property
    def seconds(self) -> dict[str, float]:
        """Time spent since it was last cleared, by what it went into."""
        ...

    def describe(self, outcome: Outcome) -> Line:
        """A line of rounds.jsonl."""
        ...

    def assess(self, models: ModelList) -> Line:
        """How good the models are, as far as it can be told."""
        ...


@flushing_denormals()
def run(
    experiment: Experiment, *, resume: bool = False, overwrite: bool = False, observe: Observer | None = None
) -> Summary:
    """Run an experiment and return its summary; everything is also written to `experiment.out`.

    A run that is interrupted with Ctrl-C saves its state first; `resume=True` goes on from the last saved state,
    and the result is the same, bit for bit, as if it had never stopped.

    >>> summary = run(Experiment(rounds=30, out="runs/first"))  # doctest: +SKIP
    """
    for caution in experiment.cautions:
        log.warning(caution)
    directory = RunDirectory(experiment.out)
    if resume and experiment.engine == "auto":
        experiment = experiment.with_settings(engine=directory.engine())
    directory.check(experiment, resume=resume, overwrite=overwrite)
    simulator = Simulator.of(experiment)
    experiment = experiment.with_settings(engine=simulator.engine_name)  # so that a repeated run takes the same
    directory.open(experiment, overwrite=overwrite)
    with directory.alone():
        return _run(experiment, simulator, directory, observe)


def _run(
    experiment: Experiment, simulator: Simulator, directory: RunDirectory, observe: Observer | None
) -> Summary:
    directory.save_task(simulator.data)
    server = Server(experiment)
    start = partial(server.start, simulator.network.initial())
    state = play(experiment, server, Simulated(simulator), start, directory, observe)
    summary = result(simulator, state.models) | summarise(experiment, state, directory)
    directory.finish(state, summary)
    return summary


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
    with closing(Records(directory.rounds_file)) as records:
        try:
            while state.rounds_done < experiment.rounds:
                if state.rounds_done % experiment.checkpoint_every == 0:
                    records.sync()
                    directory.save(state)
                state, line = _play_round(experiment, federation, server, state, records)
                if observe:
                    observe(Progress(experiment, state.models, line))
                if has_diverged(experiment, line):
                    break
        except KeyboardInterrupt:
            records.sync()
            directory.save(state)
            raise
    return state


def _play_round(
    experiment: Experiment, federation: Federation, server: Server, state: State, records: Records
) -> tuple[State, Line]:
    began = perf_counter()
    federation.seconds.clear()
    outcome = drive(server.round(state.models, state.rounds_done), federation.answer)
    protocol = perf_counter() - began - sum(federation.seconds.values())
    done = state.rounds_done + 1
    line = federation.describe(outcome)
    if done % experiment.eval_every == 0 or done == experiment.rounds:
        line |= federation.assess(outcome.models)
    line |= {"seconds": perf_counter() - began, "phases": dict(federation.seconds) | {"protocol": protocol}}
    records.append(line)
    return State(done, outcome.models), line


def has_diverged(experiment: Experiment, line: Line) -> bool:
    """Whether a single model is beyond help: no client could train it to finite numbers."""
    return not experiment.keeps_list and line["rejected"].get("not finite", 0) == experiment.num_clients


class Simulated:
    """A simulator, which knows everything, as the federation of a run."""

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self.answer = simulator.answer
        self.seconds: dict[str, float] = simulator.seconds

    def describe(self, outcome: Outcome) -> Line:
        """The server's record, with who was honest, how far the vote was from lost, and mean losses."""
        line = describe(outcome.record, self.simulator.byzantine)
        if self.simulator.experiment.keeps_list:
            line |= {"margin": self.simulator.margin}
        return line | {"loss": _by_model(*self.simulator.known_losses(outcome.record.votes))}

    def assess(self, models: ModelList) -> Line:
        """Accuracy of each model of the list, and what honest clients would deploy."""
        return assess(models, self.simulator)


def describe(record: Record, byzantine: frozenset[Client] | None = None) -> Line:
    """The record of a round as a line of rounds.jsonl; who is honest only where that is known."""
    line: Line = {"round": record.round_index}
    born = [describe_birth(birth, byzantine) for birth in record.born]
    if len(born) == 1:  # the paper's round: no list of one
        (birth,) = record.born
        clients = birth.clients[0] if len(birth.clients) == 1 else list(birth.clients)
        line |= {"model": birth.model, "client": clients, "parent": birth.parents[0]}
        line |= {key: value for key, value in born[0].items() if key == "honest"}
    elif born:
        line |= {"born": born}
    return line | {
        "votes": {str(model): count for model, count in record.votes.items()},
        "removed": list(record.removed),
        "rejected": record.rejected,
    }


def describe_birth(birth: Birth, byzantine: frozenset[Client] | None) -> dict[str, Any]:
    """A new model with its parents and the clients in it; what the server made of other models is neither kind."""
    line = {"model": birth.model, "parents": list(birth.parents), "clients": list(birth.clients)}
    if byzantine is None:
        return line
    return line | {"honest": byzantine.isdisjoint(birth.clients) if birth.clients else None}


def assess(models: ModelList, simulator: Simulator) -> Line:
    """Accuracy of each model of the list, and what honest clients would deploy."""
    return {
        "accuracy": _by_model(models.ids, simulator.accuracies(models).mean(0)),
        "deployed_accuracy": simulator.deployed_accuracy(models),
    }


def _by_model(ids: Sequence[int], values: Sequence[float] | NDArray[np.float64]) -> dict[str, float | None]:
    """Values by model id as JSON has them: keys are strings, and there is no infinity."""
    return {str(model): _finite(value) for model, value in zip(ids, values, strict=True)}


def _finite(value: float) -> float | None:
    return float(value) if isfinite(value) else None


def summarise(experiment: Experiment, state: State, directory: RunDirectory) -> Summary:
    """What a run was, and how long it took.

    A run whose single model diverged stops there, says when, and keeps its accuracy for the rounds left.
    """
    lines = list(directory.lines())
    seconds = sum(line["seconds"] for line in lines)
    margins = [line["margin"] for line in lines if line.get("margin") is not None]
    return {
        "rounds": experiment.rounds,
        "seconds": seconds,
        "seconds_per_round": seconds / state.rounds_done,
        "smallest_margin": min(margins, default=None),
        "candidates_per_round": sum(len(births(line)) for line in lines) / len(lines),
        "diverged_at": state.rounds_done if state.rounds_done < experiment.rounds else None,
        "list_size": experiment.list_size,
        "num_byzantine": experiment.num_byzantine,
        "experiment": asdict(experiment),
        "version": version("lidfl"),
        "commit": source_commit(),
    }


def result(simulator: Simulator, models: ModelList) -> Summary:
    """How good a list is. `test_accuracy` is the paper's: per model the mean over all clients, then the best."""
    accuracies = simulator.accuracies(models).mean(0)
    return {
        "test_accuracy": float(accuracies.max()),
        "deployed_accuracy": simulator.deployed_accuracy(models),
        "validation_loss": _finite(simulator.losses(models, simulator.audience).mean(0).min()),
        "per_model_accuracy": _by_model(models.ids, accuracies),
    }


@cache
def source_commit() -> str | None:
    """The commit of the clone that this code runs from, marked if files differ from it; None if installed."""
    clone = Path(__file__).parents[2]
    if not (clone / ".git").exists():
        return None
    command = ["git", "-C", str(clone), "describe", "--always", "--dirty", "--exclude=*", "--abbrev=10"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or None
