"""How simulated clients answer a request to train: honest ones by their work, Byzantine ones by their attack."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lidfl.adversaries.attacks import attack
from lidfl.data.shards import DrawnShards, FederatedData
from lidfl.errors import LidflError
from lidfl.learning.client import LocalTraining, draw_batches
from lidfl.learning.engines import ENGINES, Engine, Jobs, candidate_engines, fastest_engine
from lidfl.learning.parameters import Network
from lidfl.methods.elections import honest_ballots
from lidfl.methods.pipelines import resolve_pipeline
from lidfl.methods.proposals import pipelines_of
from lidfl.protocol import ModelList, Replies, Train, Trained, first_choices
from lidfl.seeds import rng_for, seed_for
from lidfl.settings.experiment import Experiment
from lidfl.simulation.cast import Cast
from lidfl.simulation.judging import Judges
from lidfl.types import Client, Models, Parameters, Position, Updates

Job: TypeAlias = tuple[Client, Position]
"""A local training: who trains, and which model of the list."""

BUILT_IN_ENGINES = {"lr": "linear", "mlp": "vmap", "cnn": "loop"}
"""What trials found for the models of this package; a user's own is tried."""


class Training:
    """All clients as workers."""

    def __init__(
        self, experiment: Experiment, data: FederatedData, network: Network, cast: Cast, judges: Judges
    ) -> None:
        self.experiment = experiment
        self.data = data
        self.network = network
        self.cast = cast
        self.judges = judges
        self.silent = cast.byzantine if experiment.plays.ideal else frozenset()
        self.attack = attack.resolve(experiment.attack)
        self.poisons_data = "labels" in self.attack.wants
        self.work = LocalTraining(
            experiment.local_steps, experiment.batch_size, experiment.learning_rate, experiment.momentum
        )
        self.images, self.labels = self._training_data()
        self.engine_name = self._engine_name()
        self.engine = self._build_engine(self.engine_name)

    def replies(self, request: Train) -> Replies:
        """What each worker sends back."""
        parents = self._parents(request)
        preferred = self._preferred(request.models) if "preferred" in self.attack.wants else None
        with self.judges.stopwatch.timed("training"):
            workers = [client for client in request.offers if client not in self.silent]
            attackers = [client for client in workers if client in self.cast.byzantine]
            jobs = self._needed(workers, attackers, parents)
            trained: dict[Job, Parameters] = {}
            models, steps = request.models.parameters, self.work.steps
            for group, alike in self.alike(jobs, models, request.round_index, "batch", steps):
                trained |= dict(zip(group, self.engine(alike), strict=True))
            sent = {c: trained[c, parents[c]] for c in workers if (c, parents[c]) in trained}
            if not self.poisons_data:
                for parent in sorted({parents[client] for client in attackers}):
                    accomplices = [client for client in attackers if parents[client] == parent]
                    sent |= self._forged(trained, accomplices, parent, request, preferred)
            return [(client, Trained(parents[client], sent[client])) for client in workers]

    def alike(
        self, jobs: Sequence[Job], models: Models, round_index: int, purpose: str, steps: int
    ) -> Iterator[tuple[list[Job], Jobs]]:
        """Trainings in sets of equal shape, as an engine takes them; batches are drawn for a purpose."""
        clients = {client for client, _ in jobs}
        batches = {client: self._batches(client, round_index, purpose)[:steps] for client in clients}
        for size in sorted({rows.shape[1] for rows in batches.values()}):
            group = [job for job in jobs if batches[job[0]].shape[1] == size]
            starts = models[[parent for _, parent in group]]
            rows = torch.from_numpy(np.stack([batches[client] for client, _ in group])).to(starts.device)
            seeds = (seed_for(self.experiment.seed, "dropout", round_index, client) for client, _ in group)
            yield group, Jobs(starts, rows, tuple(seeds))

    def _parents(self, request: Train) -> dict[Client, Position]:
        """Which of the models that it is offered each client trains.

        A Byzantine client takes what most honest ones take: there it does the most harm.
        """
        choices = {client: offer[0] for client, offer in request.offers.items() if len(offer) == 1}
        undecided = sorted(client for client in request.offers if client not in choices)
        if not undecided:
            return choices
        losses = self.judges.losses(request.models, np.array(undecided))
        for client, row in zip(undecided, losses, strict=True):
            offer = request.offers[client]
            choices[client] = offer[int(row[list(offer)].argmin())]
        byzantine = self.cast.byzantine
        favoured = Counter(choices[client] for client in request.offers if client not in byzantine)
        if favoured:
            common = favoured.most_common(1)[0][0]
            choices |= {c: common for c in undecided if c in byzantine and common in request.offers[c]}
        return choices

    def _needed(
        self, workers: Sequence[Client], attackers: Sequence[Client], parents: Mapping[Client, Position]
    ) -> list[Job]:
        """Which trainings are computed: those that are sent, and those that the attack looks at."""
        needed = {(client, parents[client]) for client in workers if client not in self.cast.byzantine}
        if self.poisons_data or "own" in self.attack.wants:
            needed |= {(client, parents[client]) for client in attackers}
        if "honest" in self.attack.wants:
            needed |= {(client, parents[attacker]) for attacker in attackers for client in self.cast.honest}
        return sorted(needed)

    def _forged(
        self,
        trained: Mapping[Job, Parameters],
        attackers: Sequence[Client],
        parent: Position,
        request: Train,
        preferred: "Parameters | None",
    ) -> dict[Client, Parameters]:
        """What attackers who were sent the same model send back."""
        wants = self.attack.wants
        forged = self.attack(
            own=_rows(trained, attackers, parent) if "own" in wants else None,
            honest=_rows(trained, self.cast.honest, parent) if "honest" in wants else None,
            start=request.models.parameters[parent],
            preferred=preferred,
            layers=self.network.shapes,
            attackers=len(attackers),
            round_index=request.round_index,
            num_byzantine=len(self.cast.byzantine),
            num_classes=self.data.num_classes,
            aggregate=partial(self._aggregate, request.round_index),
            rng=rng_for(self.experiment.seed, "attack", request.round_index, parent),
        ).expand(len(attackers), -1)
        return dict(zip(attackers, forged, strict=True))

    def _aggregate(self, round_index: int, updates: Updates) -> Parameters:
        """What the rule in use would make of the updates of all; attackers do not know what the server draws."""
        spec = self.experiment.plays.aggregate or self.experiment.proposal
        rule = next(iter(pipelines_of(spec)), None) or resolve_pipeline("fedavg")
        rng = rng_for(self.experiment.seed, "guess", round_index)
        return rule.vector(updates, num_honest=len(self.cast.honest), rng=rng)

    def _preferred(self, models: ModelList) -> Parameters:
        """The model that most honest clients would vote for."""
        ballots = honest_ballots(self.judges.losses(models, np.array(self.cast.honest)))
        return models.parameters[int(np.argmax(first_choices(ballots, len(models))))]

    def _batches(self, client: Client, round_index: int, purpose: str) -> NDArray[np.int64]:
        """A client's batches as rows of all clients' training images."""
        rows = self.data.train.rows(client)
        rng = rng_for(self.experiment.seed, purpose, round_index, client)
        return rows[draw_batches(len(rows), self.work, rng)]

    def _training_data(self) -> tuple[Tensor, Tensor]:
        """Training images and labels, those of Byzantine clients poisoned if the attack is one on data."""
        shards = self.data.train
        if not self.poisons_data:
            return shards.images, shards.labels
        if isinstance(shards, DrawnShards):
            raise LidflError(
                f"{self.attack.name} poisons a client's own images; choose a partition that deals them"
            )
        owners = np.repeat(np.arange(len(shards.sizes)), shards.sizes)
        theirs = torch.from_numpy(np.isin(owners, sorted(self.cast.byzantine))).to(shards.labels.device)
        rng = rng_for(self.experiment.seed, "poison")
        num_classes = self.data.num_classes
        made = self.attack(images=shards.images, labels=shards.labels, num_classes=num_classes, rng=rng)
        images, labels = made if isinstance(made, tuple) else (shards.images, made)
        images = torch.where(theirs[:, None, None, None], images, shards.images)
        return images, torch.where(theirs, labels, shards.labels)

    # Which engine

    def _engine_name(self) -> str:
        """The engine that was asked for, if it can train the model, or the fastest that can."""
        names = candidate_engines(self.network)
        asked = self.experiment.engine
        if asked == "auto":
            known = BUILT_IN_ENGINES.get(self.experiment.model.partition(":")[0])
            return known or fastest_engine(self._build_engine, names, self._trial_jobs())
        if asked not in {*names, "loop"}:
            raise LidflError(f"engine '{asked}' cannot train model '{self.experiment.model}'; choose {names[0]}")
        return asked

    def _build_engine(self, name: str) -> Engine:
        return ENGINES[name](self.network, self.work, self.images, self.labels)

    def _trial_jobs(self) -> Jobs:
        """A few steps of a few clients, to try engines with."""
        clients = range(min(8, self.experiment.num_clients))
        batches = [self._batches(client, 0, "batch")[:4] for client in clients]
        size = min(rows.shape[1] for rows in batches)
        rows = torch.from_numpy(np.stack([batch[:, :size] for batch in batches])).to(self.experiment.device)
        return Jobs(self.network.initial().expand(len(clients), -1), rows, tuple(clients))


def _rows(updates: Mapping[Job, Parameters], clients: Iterable[Client], parent: Position) -> Updates:
    return torch.stack([updates[client, parent] for client in clients])
