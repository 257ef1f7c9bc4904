"""Runs an experiment in process: simulated clients, honest and Byzantine, answer the server's requests.

Only this room knows who is Byzantine.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from lidfl.data.shards import FederatedData
from lidfl.learning.client import flushing_denormals
from lidfl.learning.parameters import Network
from lidfl.protocol import Choose, Outcome, Replies, Request, Train, Vote
from lidfl.runs.directory import RunDirectory, Summary
from lidfl.runs.loop import Observer, play
from lidfl.runs.record import Findings
from lidfl.runs.server import first_list
from lidfl.runs.stopwatch import Stopwatch
from lidfl.runs.summary import summarise
from lidfl.settings.experiment import Experiment
from lidfl.settings.world import build_network, load_data
from lidfl.simulation.cast import Cast
from lidfl.simulation.judging import Judges
from lidfl.simulation.testing import Auditor
from lidfl.simulation.training import Training
from lidfl.simulation.voting import Poll, Voting

log = logging.getLogger(__name__)


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
    directory.check(experiment, resume=resume, overwrite=overwrite)  # before the data is loaded, and again below
    simulator = Simulator.of(experiment)
    experiment = experiment.with_settings(engine=simulator.engine_name)  # so that a repeated run takes the same
    with directory.claimed(experiment, resume=resume, overwrite=overwrite):
        directory.save_inputs(simulator.data)
        start = partial(first_list, experiment, simulator.network.initial())
        state = play(experiment, simulator, start, directory, observe)
        summary = simulator.auditor.result(state.models) | summarise(experiment, state, directory)
        directory.finish(state, summary)
        return summary


class Simulator:
    """All clients of an experiment."""

    def __init__(self, experiment: Experiment, data: FederatedData, network: Network) -> None:
        self.experiment = experiment
        self.data = data
        self.network = network
        self.stopwatch = Stopwatch()
        self.cast = Cast.of(experiment)
        self.judges = Judges(data, network, self.stopwatch)
        self.training = Training(experiment, data, network, self.cast, self.judges)
        self.voting = Voting(experiment, self.cast, self.judges)
        self.auditor = Auditor(self.cast, self.judges)

    @classmethod
    def of(cls, experiment: Experiment) -> "Simulator":
        """The simulator of an experiment, with its data loaded and its model built."""
        data = load_data(experiment)
        return cls(experiment, data, build_network(experiment, data))

    @property
    def engine_name(self) -> str:
        """How local trainings are computed."""
        return self.training.engine_name

    def open_round(self) -> "SimulatedRound":
        """Begin a round."""
        return SimulatedRound(self)

    def answer(self, request: Request) -> Replies:
        """Every client's reply to a request, whatever round it belongs to."""
        return self.open_round().answer(request)


class SimulatedRound:
    """One round of a simulation."""

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self.poll: Poll | None = None
        self._before = dict(simulator.stopwatch.seconds)

    @property
    def seconds(self) -> Mapping[str, float]:
        """The time of this round so far, by what it went into."""
        now = self.simulator.stopwatch.seconds.items()
        spent = {phase: seconds - self._before.get(phase, 0.0) for phase, seconds in now}
        return {phase: seconds for phase, seconds in spent.items() if seconds}

    def answer(self, request: Request) -> Replies:
        """Every client's reply to a request."""
        match request:
            case Train():
                return self.simulator.training.replies(request)
            case Choose():
                return self.simulator.voting.choices(request)
            case Vote():
                self.poll = self.simulator.voting.poll(request)
                return self.poll.replies

    def findings(self, outcome: Outcome, *, test: bool) -> Findings:
        """What a simulation knows of the round: all there is to know."""
        found = self.simulator.auditor.findings(outcome, test=test)
        return replace(found, margin=self.poll.margin, loss=self.poll.loss) if self.poll else found
