"""Answers a server's requests in process: honest clients and adversaries, all of them vectorised.

This is the only place that knows who is Byzantine.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lidfl.attacks import attack
from lidfl.client import LocalTraining, draw_batches, finite_or_inf, image_hits, image_losses
from lidfl.collusion import margin
from lidfl.config import ORACLE, Experiment
from lidfl.datasets.federated import DrawnShards, FederatedData
from lidfl.elections import first_choices, honest_ballots
from lidfl.engines import ENGINES, Engine, Jobs, candidate_engines, fastest_engine, logits_for
from lidfl.errors import LidflError
from lidfl.judging import Clients, OncePerModel, Panel
from lidfl.parameters import Network
from lidfl.protocol import Choose, ModelList, Replies, Request, Train, Trained, Vote
from lidfl.seeds import rng_for, seed_for
from lidfl.types import Ballot, Client, Losses, Parameters, Position, Updates
from lidfl.vote_attacks import vote_attack, worst
from lidfl.world import build_network, draw_byzantine, load_data

AUDIENCE = 10_000
"""Over so many clients results are averaged at most."""

Job: TypeAlias = tuple[Client, Position]
"""A local training: who trains, and which model of the list."""

BUILT_IN_ENGINES = {"lr": "linear", "mlp": "vmap", "cnn": "loop"}
"""What trials found for the models of this package; a user's own is tried."""


class Simulator:
    """All clients of an experiment."""

    def __init__(self, experiment: Experiment, data: FederatedData, network: Network) -> None:
        self.experiment = experiment
        self.data = data
        self.network = network
        self.byzantine = draw_byzantine(experiment)
        self.honest = [client for client in range(experiment.num_clients) if client not in self.byzantine]
        self.everyone = np.arange(experiment.num_clients)
        self.audience = sample_audience(experiment)
        self.silent = self.byzantine if experiment.method == ORACLE else frozenset()
        self.attack = attack.resolve(experiment.attack)
        self.poisons_data = "labels" in self.attack.wants
        self.margin: int | None = None
        self.vote_attack = vote_attack.resolve(experiment.vote_attack)
        self.training = LocalTraining(
            experiment.local_steps, experiment.batch_size, experiment.learning_rate, experiment.momentum
        )
        self.labels = self._training_labels()
        self.engine_name = self._engine_name()
        self.engine = self._build_engine(self.engine_name)
        logits = logits_for(network)
        self.validation = Panel(data.validation, logits, image_losses)
        self.testing = Panel(data.test, logits, image_hits)
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._losses = OncePerModel(self.judge)
        self._accuracies = OncePerModel(self.test)

    @classmethod
    def of(cls, experiment: Experiment) -> "Simulator":
        """The simulator of an experiment, with its data loaded and its model built."""
        data = load_data(experiment)
        return cls(experiment, data, build_network(experiment, data))

    def answer(self, request: Request) -> Replies:
        """Every client's reply to a request."""
        match request:
            case Train():
                return self._train(request)
            case Choose():
                return self._choose(request)
            case Vote():
                return self._vote(request)

    # Training

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
        return ENGINES[name](self.network, self.training, self.data.train.images, self.labels)

    def _trial_jobs(self) -> Jobs:
        """A few steps of a few clients, to try engines with."""
        clients = range(min(8, self.experiment.num_clients))
        batches = [self._batches(client, round_index=0)[:4] for client in clients]
        size = min(rows.shape[1] for rows in batches)
        rows = torch.from_numpy(np.stack([batch[:, :size] for batch in batches])).to(self.experiment.device)
        return Jobs(self.network.initial().expand(len(clients), -1), rows, tuple(clients))

    def _train(self, request: Train) -> Replies:
        parents = self._parents(request)
        preferred = self._preferred(request.models) if "preferred" in self.attack.wants else None
        with self._timed("training"):
            workers = [client for client in request.offers if client not in self.silent]
            attackers = [client for client in workers if client in self.byzantine]
            trained = self.train_all(
                self._needed(workers, attackers, parents), request.models.parameters, request.round_index
            )
            sent = {
                client: trained[client, parents[client]]
                for client in workers
                if (client, parents[client]) in trained
            }
            for parent in sorted({parents[client] for client in attackers}) if not self.poisons_data else ():
                accomplices = [client for client in attackers if parents[client] == parent]
                sent |= self._forged(trained, accomplices, parent, request, preferred)
            return [(client, Trained(parents[client], sent[client])) for client in workers]

    def _parents(self, request: Train) -> dict[Client, Position]:
        """Which of the models that it is offered each client trains.

        A Byzantine client takes what most honest ones take: there it does the most harm.
        """
        choices = {client: offer[0] for client, offer in request.offers.items() if len(offer) == 1}
        undecided = [client for client in request.offers if client not in choices]
        if not undecided:
            return choices
        losses = self.losses(request.models, np.array(sorted(undecided)))
        for client, row in zip(sorted(undecided), losses, strict=True):
            offer = request.offers[client]
            choices[client] = offer[int(row[list(offer)].argmin())]
        favoured = Counter(choices[client] for client in request.offers if client not in self.byzantine)
        if favoured:
            common = favoured.most_common(1)[0][0]
            choices |= {c: common for c in undecided if c in self.byzantine and common in request.offers[c]}
        return choices

    def _needed(
        self, workers: Sequence[Client], attackers: Sequence[Client], parents: Mapping[Client, Position]
    ) -> list[Job]:
        """Which trainings are computed: those that are sent, and those that the attack looks at."""
        needed = {(client, parents[client]) for client in workers if client not in self.byzantine}
        if self.poisons_data or "own" in self.attack.wants:
            needed |= {(client, parents[client]) for client in attackers}
        if "honest" in self.attack.wants:
            needed |= {(client, parents[attacker]) for attacker in attackers for client in self.honest}
        return sorted(needed)

    def _forged(
        self,
        trained: Mapping[Job, Parameters],
        attackers: Sequence[Client],
        parent: Position,
        request: Train,
        preferred: Parameters | None,
    ) -> dict[Client, Parameters]:
        """What attackers who were sent the same model send back."""
        wants = self.attack.wants
        forged = self.attack(
            own=_rows(trained, attackers, parent) if "own" in wants else None,
            honest=_rows(trained, self.honest, parent) if "honest" in wants else None,
            start=request.models.parameters[parent],
            preferred=preferred,
            num_byzantine=len(self.byzantine),
            num_classes=self.data.num_classes,
            rng=rng_for(self.experiment.seed, "attack", request.round_index, parent),
        ).expand(len(attackers), -1)
        return dict(zip(attackers, forged, strict=True))

    def _preferred(self, models: ModelList) -> Parameters:
        """The model that most honest clients would vote for."""
        ballots = honest_ballots(self.losses(models, np.array(self.honest)))
        return models.parameters[int(np.argmax(first_choices(ballots, len(models))))]

    def train_all(self, jobs: Sequence[Job], models: Updates, round_index: int) -> dict[Job, Parameters]:
        """The updates of clients that train as they should, through the engine in sets of equal shape."""
        batches = {client: self._batches(client, round_index) for client in {client for client, _ in jobs}}
        updates: dict[Job, Parameters] = {}
        for size in sorted({rows.shape[1] for rows in batches.values()}):
            group = [job for job in jobs if batches[job[0]].shape[1] == size]
            starts = models[[parent for _, parent in group]]
            rows = torch.from_numpy(np.stack([batches[client] for client, _ in group])).to(starts.device)
            seeds = (seed_for(self.experiment.seed, "dropout", round_index, client) for client, _ in group)
            trained = self.engine(Jobs(starts, rows, tuple(seeds)))
            updates |= dict(zip(group, trained, strict=True))
        return updates

    def _batches(self, client: Client, round_index: int) -> NDArray[np.int64]:
        """A client's batches as rows of all clients' training images."""
        rows = self.data.train.rows(client)
        rng = rng_for(self.experiment.seed, "batch", round_index, client)
        return rows[draw_batches(len(rows), self.training, rng)]

    def _training_labels(self) -> Tensor:
        """Training labels, those of Byzantine clients poisoned if the attack is one on data."""
        shards = self.data.train
        if not self.poisons_data:
            return shards.labels
        if isinstance(shards, DrawnShards):
            raise LidflError(
                f"{self.attack.name} poisons a client's own images; choose a partition that deals them"
            )
        owners = np.repeat(np.arange(len(shards.sizes)), shards.sizes)
        poisoned = torch.from_numpy(np.isin(owners, sorted(self.byzantine))).to(shards.labels.device)
        flipped = self.attack(labels=shards.labels, num_classes=self.data.num_classes)
        return torch.where(poisoned, flipped, shards.labels)

    # Voting

    def _choose(self, request: Choose) -> Replies:
        """Jurors pick from what was trained, each on its own data; nothing of it is remembered.

        A Byzantine juror picks what is worst for it, unless Byzantine clients vote as honest ones do.
        """
        jurors = np.array(request.voters)
        with self._timed("evaluation"):
            losses = finite_or_inf(self.validation.means(request.models, jurors)).T
        best, worst_first = honest_ballots(losses, request.ranks), worst(losses, request.ranks)
        lie = self._are_byzantine(request.voters) & (self.vote_attack.name != "none")
        return [(juror, worst_first[row] if lie[row] else best[row]) for row, juror in enumerate(request.voters)]

    def _vote(self, request: Vote) -> Replies:
        losses = self.losses(request.candidates, np.array(request.voters))
        byzantine = self._are_byzantine(request.voters)
        with self._timed("voting"):
            honest = honest_ballots(losses[~byzantine], request.ranks)
            forged = self._forged_ballots(request, losses[byzantine], losses[~byzantine], honest)
            voters = np.array(request.voters)
            senders = [*voters[~byzantine].tolist(), *voters[byzantine].tolist()]
        with self._timed("margin"):
            self.margin = margin(honest, forged, request.candidates.ages, request.seats, request.ranks)
        return list(zip(senders, [*honest, *forged], strict=True))

    def _forged_ballots(
        self, request: Vote, own: Losses, honest: Losses, ballots: Sequence[Ballot]
    ) -> list[Ballot]:
        if len(own) == 0:
            return []
        return self.vote_attack(
            losses=own,
            honest_losses=honest,
            honest_ballots=ballots,
            ages=request.candidates.ages,
            seats=request.seats,
            ranks=request.ranks,
            rng=rng_for(self.experiment.seed, "vote", request.round_index),
        )

    def _are_byzantine(self, clients: Sequence[Client]) -> NDArray[np.bool_]:
        return np.array([client in self.byzantine for client in clients])

    def losses(self, candidates: ModelList, clients: Clients | None = None) -> Losses:
        """The validation loss of every candidate for these clients, or for all; (clients, candidates)."""
        with self._timed("evaluation"):
            return self._losses(candidates, self.everyone if clients is None else clients)

    def judge(self, vector: Parameters, clients: Clients) -> NDArray[np.float64]:
        """Each client's validation loss of one model."""
        return finite_or_inf(self.validation.means(vector[None], clients)[0])

    def known_losses(self, ids: Iterable[int]) -> tuple[list[int], list[float]]:
        """Those of the models that have been judged, and the mean loss over the clients that judged it."""
        judged = [model for model in ids if model in self._losses.known]
        return judged, [float(self._losses.known[model][1].mean()) for model in judged]

    @property
    def evaluations(self) -> Counter[int]:
        """How often the validation losses of each model, by id, were computed."""
        return self._losses.computed

    # Testing

    def accuracies(self, candidates: ModelList) -> NDArray[np.float64]:
        """The test accuracy of every model for each client of the audience, (clients, models)."""
        with self._timed("testing"):
            return self._accuracies(candidates, self.audience)

    def test(self, vector: Parameters, clients: Clients) -> NDArray[np.float64]:
        """Each client's test accuracy of one model."""
        accuracies: NDArray[np.float64] = self.testing.means(vector[None], clients)[0].cpu().numpy()
        return accuracies

    def deployed_accuracy(self, candidates: ModelList) -> float:
        """The mean test accuracy of honest clients, each with the model of its lowest validation loss."""
        chosen = self.losses(candidates, self.audience).argmin(1)
        deployed = self.accuracies(candidates)[np.arange(len(chosen)), chosen]
        return float(deployed[~self._are_byzantine(self.audience.tolist())].mean())

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        began = perf_counter()
        yield
        self.seconds[phase] += perf_counter() - began


def sample_audience(experiment: Experiment) -> Clients:
    """The clients over whom results are averaged: all, or of a great many a sample."""
    if experiment.num_clients <= AUDIENCE:
        return np.arange(experiment.num_clients)
    rng = rng_for(experiment.seed, "audience")
    return np.sort(rng.choice(experiment.num_clients, AUDIENCE, replace=False))


def _rows(updates: Mapping[Job, Parameters], clients: Iterable[Client], parent: Position) -> Updates:
    return torch.stack([updates[client, parent] for client in clients])
