"""Runs an experiment in process: simulated clients, honest and Byzantine, answer the server's requests.

Only this room knows who is Byzantine.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import torch

from lidfl.adversaries.backdoors import trigger_of
from lidfl.data.shards import FederatedData
from lidfl.learning.client import flushing_denormals
from lidfl.learning.engines import logits_for
from lidfl.learning.parameters import Network
from lidfl.protocol import (
    SERVER,
    Canonical,
    Choose,
    ModelList,
    Outcome,
    Replies,
    Request,
    ServerLosses,
    ServerTrains,
    Train,
    Trained,
    Validate,
    Vote,
)
from lidfl.runs.clients import MOST, ClientTold, write_clients
from lidfl.runs.directory import RunDirectory, Summary
from lidfl.runs.loop import Observer, play
from lidfl.runs.record import Findings
from lidfl.runs.server import Server, first_list
from lidfl.runs.stopwatch import Stopwatch
from lidfl.runs.summary import summarise
from lidfl.settings.experiment import Experiment
from lidfl.settings.world import build_network, canonical_form, load_data, measure_of
from lidfl.simulation.cast import Cast
from lidfl.simulation.deploying import Deployment
from lidfl.simulation.judging import Judges
from lidfl.simulation.presence import Presence
from lidfl.simulation.server_set import ServerSet
from lidfl.simulation.testing import Auditor
from lidfl.simulation.training import Training
from lidfl.simulation.validating import Validators
from lidfl.simulation.voting import Poll, Voting
from lidfl.simulation.wariness import Wariness
from lidfl.simulation.workshop import Workshop
from lidfl.types import Client, Position

log = logging.getLogger(__name__)


@flushing_denormals()
def run(
    experiment: Experiment,
    *,
    resume: bool = False,
    overwrite: bool = False,
    from_round: int = 0,
    observe: Observer | None = None,
) -> Summary:
    """Run an experiment and return its summary; everything is also written to `experiment.out`.

    A run that is interrupted with Ctrl-C saves its state first; `resume=True` goes on from the last saved state,
    and the result is the same, bit for bit, as if it had never stopped. With `from_round` it goes on from an
    earlier one of those that are kept.

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
        if from_round:
            directory.rewind(from_round)
        return _run(experiment, simulator, directory, observe)


def _run(
    experiment: Experiment, simulator: "Simulator", directory: RunDirectory, observe: Observer | None
) -> Summary:
    """Play the rounds that are left and write the result."""
    directory.save_inputs(simulator.data)
    server = Server(experiment, simulator.canonical())
    start = partial(first_list, experiment, simulator.network.initial())
    state = play(experiment, server, simulator, start, directory, observe)
    summary = simulator.auditor.result(state.models) | summarise(experiment, state, directory)
    directory.finish(state, summary)
    if experiment.num_clients <= MOST:
        write_clients(directory.path, simulator.told(state.models))
    return summary


class Simulator:
    """All clients of an experiment."""

    def __init__(self, experiment: Experiment, data: FederatedData, network: Network) -> None:
        self.experiment = experiment
        self.data = data
        self.network = network
        self.stopwatch = Stopwatch()
        self.cast = Cast.of(experiment)
        self.workshop = Workshop(experiment, data, network, self.cast)
        logits = logits_for(network, self.workshop.engine_name, data.train.images)
        self.judges = Judges(data, logits, self.stopwatch, measure_of(experiment, data.num_classes))
        self.training = Training(self.workshop, self.judges)
        self.voting = Voting(experiment, self.cast, self.judges, Wariness(self.workshop, self.judges))
        self.validators = Validators(self.voting)
        self.presence = Presence(experiment, self.cast)
        self.server_set = ServerSet(self.workshop, self.judges)
        deployment = Deployment(self.workshop, self.judges)
        self.auditor = Auditor(self.cast, self.judges, deployment, trigger_of(self.workshop.attack))

    @classmethod
    def of(cls, experiment: Experiment) -> "Simulator":
        """The simulator of an experiment, with its data loaded and its model built."""
        data = load_data(experiment)
        return cls(experiment, data, build_network(experiment, data))

    @property
    def engine_name(self) -> str:
        """How local trainings are computed."""
        return self.workshop.engine_name

    def told(self, models: ModelList) -> list[ClientTold]:
        """What each client holds, what it is, and what it makes of a final list."""
        deployed, byzantine = self.auditor.deployed_by_client(models), self.cast.byzantine
        return [
            ClientTold(client, self.data.labels_of(client), client in byzantine, deployed.get(client))
            for client in self.cast.everyone.tolist()
        ]

    def canonical(self) -> Canonical | None:
        """The form that models are brought into, if they are to be."""
        return canonical_form(self.experiment, self.network, self.network.initial())

    def open_round(self, moment: int) -> "SimulatedRound":
        """Begin a round."""
        return SimulatedRound(self, self.presence.absent(moment))

    def answer(self, request: Request) -> Replies:
        """Every client's reply to a request, whatever round it belongs to."""
        return SimulatedRound(self, frozenset()).answer(request)


class SimulatedRound:
    """One round of a simulation."""

    def __init__(self, simulator: Simulator, absent: frozenset[Client]) -> None:
        self.simulator = simulator
        self.absent = absent
        self.lengths: dict[Client, float] = {}
        """How long the updates of those are who trained what they liked best."""
        self.poll: Poll | None = None
        self._before = dict(simulator.stopwatch.seconds)

    @property
    def seconds(self) -> Mapping[str, float]:
        """The time of this round so far, by what it went into."""
        now = self.simulator.stopwatch.seconds.items()
        spent = {phase: seconds - self._before.get(phase, 0.0) for phase, seconds in now}
        return {phase: seconds for phase, seconds in spent.items() if seconds}

    def answer(self, request: Request) -> Replies:
        """The reply of every client that is there."""
        match request:
            case Train():
                there = {client: offer for client, offer in request.offers.items() if client not in self.absent}
                return self._measured(self.simulator.training.replies(replace(request, offers=there)), there)
            case ServerLosses():
                return [(SERVER, self.simulator.server_set.losses(request.models))]
            case ServerTrains():
                return [
                    (SERVER, self.simulator.server_set.trained(request.model, request.round_index, request.part))
                ]
            case Choose() | Vote() | Validate() if not self._there(request):
                return []
            case Validate():
                return self.simulator.validators.verdicts(replace(request, voters=self._there(request)))
            case Choose():
                return self.simulator.voting.choices(replace(request, voters=self._there(request)), self.lengths)
            case Vote():
                self.poll = self.simulator.voting.poll(replace(request, voters=self._there(request)), self.lengths)
                return self.poll.replies

    def _there(self, request: Choose | Vote | Validate) -> tuple[Client, ...]:
        return tuple(voter for voter in request.voters if voter not in self.absent)

    def _measured(self, replies: Replies, offers: Mapping[Client, tuple[Position, ...]]) -> Replies:
        """The replies, with the lengths of updates noted that start from a model of the client's own choice."""
        for client, reply in replies:
            if isinstance(reply, Trained) and len(offers[client]) > 1:
                self.lengths[client] = float(torch.linalg.vector_norm(reply.update))
        return replies

    def wait(self, outcome: Outcome) -> None:
        """In a simulation moments pass by themselves."""

    def findings(self, outcome: Outcome, *, test: bool) -> Findings:
        """What a simulation knows of the round: all there is to know."""
        found = self.simulator.auditor.findings(outcome, test=test)
        return replace(found, margin=self.poll.margin, loss=self.poll.loss) if self.poll else found
