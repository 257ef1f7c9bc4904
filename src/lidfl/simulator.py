"""Answers a server's requests in process: honest clients and adversaries, all of them vectorised.

This is the only place that knows who is Byzantine.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lidfl.attacks import attack
from lidfl.client import LocalTraining, draw_batches, finite_or_inf, image_hits, image_losses
from lidfl.config import Experiment
from lidfl.datasets.federated import FederatedData, Shards
from lidfl.elections import honest_ballots, vote_attack
from lidfl.engines import ENGINES, Engine, Jobs, candidate_engines, fastest_engine, logits_for
from lidfl.errors import LidflError
from lidfl.parameters import Network
from lidfl.protocol import ModelList, Replies, Request, Train, Trained, Vote
from lidfl.seeds import rng_for, seed_for
from lidfl.types import Ballot, Client, Losses, Parameters, Updates
from lidfl.world import build_network, draw_byzantine, load_data

Measure: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""From logits and labels to a number for each image: its loss, or whether it is right."""

BUILT_IN_ENGINES = {"lr": "linear", "mlp": "vmap", "cnn": "loop"}
"""What trials found for the models of this package; a user's own is tried."""


class OncePerModel:
    """What every client finds of each model of a list, computed once and remembered while the model stays."""

    def __init__(self, compute: Callable[[Parameters], NDArray[np.float64]]) -> None:
        self.compute = compute
        self.known: dict[int, NDArray[np.float64]] = {}
        self.computed: Counter[int] = Counter()

    def __call__(self, models: ModelList) -> NDArray[np.float64]:
        """One row a client, one column a model."""
        self.known = {model: self.known[model] for model in models.ids if model in self.known}
        for model, vector in zip(models.ids, models.parameters, strict=True):
            if model not in self.known:
                self.known[model] = self.compute(vector)
                self.computed[model] += 1
        return np.stack([self.known[model] for model in models.ids], axis=1)


class Simulator:
    """All clients of an experiment."""

    def __init__(self, experiment: Experiment, data: FederatedData, network: Network) -> None:
        self.experiment = experiment
        self.data = data
        self.network = network
        self.byzantine = draw_byzantine(experiment)
        self.honest = [client for client in range(experiment.num_clients) if client not in self.byzantine]
        self.attack = attack.resolve(experiment.attack)
        self.vote_attack = vote_attack.resolve(experiment.vote_attack)
        self.training = LocalTraining(
            experiment.local_steps, experiment.batch_size, experiment.learning_rate, experiment.momentum
        )
        self.labels = self._training_labels()
        self.engine_name = self._engine_name()
        self.engine = self._build_engine(self.engine_name)
        self.logits = logits_for(network)
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
        with self._timed("training"):
            replies: list[tuple[Client, Trained]] = []
            for parent in sorted({offer[0] for offer in request.offers.values()}):
                workers = [client for client, offer in request.offers.items() if offer[0] == parent]
                start = request.models.parameters[parent]
                sent = self._sent_updates(start, workers, request.round_index, parent)
                replies += [(client, Trained(parent, sent[client])) for client in workers]
            return replies

    def _sent_updates(
        self, start: Parameters, workers: Sequence[Client], round_index: int, parent: int
    ) -> dict[Client, Parameters]:
        """What each worker sends for one model: its update, or what the attack makes of it."""
        attackers = [client for client in workers if client in self.byzantine]
        behaves = "labels" in self.attack.wants
        needed = {client for client in workers if client not in self.byzantine}
        needed |= set(attackers) if behaves or "own" in self.attack.wants else set()
        needed |= set(self.honest) if attackers and "honest" in self.attack.wants else set()
        updates = self.honest_updates(start, sorted(needed), round_index)
        if behaves or not attackers:
            return updates
        forged = self.attack(
            own=_rows(updates, attackers) if "own" in self.attack.wants else None,
            honest=_rows(updates, self.honest) if "honest" in self.attack.wants else None,
            num_byzantine=len(self.byzantine),
            num_classes=self.data.num_classes,
            rng=rng_for(self.experiment.seed, "attack", round_index, parent),
        ).expand(len(attackers), -1)
        return updates | dict(zip(attackers, forged, strict=True))

    def honest_updates(
        self, start: Parameters, clients: Sequence[Client], round_index: int
    ) -> dict[Client, Parameters]:
        """The updates of clients that train as they should, through the engine in sets of equal shape."""
        batches = {client: self._batches(client, round_index) for client in clients}
        updates: dict[Client, Parameters] = {}
        for size in sorted({rows.shape[1] for rows in batches.values()}):
            group = [client for client in clients if batches[client].shape[1] == size]
            rows = torch.from_numpy(np.stack([batches[client] for client in group])).to(start.device)
            seeds = tuple(seed_for(self.experiment.seed, "dropout", round_index, client) for client in group)
            trained = self.engine(Jobs(start.expand(len(group), -1), rows, seeds))
            updates |= dict(zip(group, trained, strict=True))
        return updates

    def _batches(self, client: Client, round_index: int) -> NDArray[np.int64]:
        """A client's batches as rows of all clients' training images."""
        offsets = self.data.train.offsets
        size = int(offsets[client + 1] - offsets[client])
        rng = rng_for(self.experiment.seed, "batch", round_index, client)
        return draw_batches(size, self.training, rng) + int(offsets[client])

    def _training_labels(self) -> Tensor:
        """Training labels, those of Byzantine clients poisoned if the attack is one on data."""
        shards = self.data.train
        if "labels" not in self.attack.wants:
            return shards.labels
        owners = np.repeat(np.arange(len(shards.sizes)), shards.sizes)
        poisoned = torch.from_numpy(np.isin(owners, sorted(self.byzantine))).to(shards.labels.device)
        flipped = self.attack(labels=shards.labels, num_classes=self.data.num_classes)
        return torch.where(poisoned, flipped, shards.labels)

    # Voting

    def _vote(self, request: Vote) -> Replies:
        losses = self.losses(request.candidates)
        with self._timed("voting"):
            honest = [client for client in request.voters if client not in self.byzantine]
            attackers = [client for client in request.voters if client in self.byzantine]
            ballots = honest_ballots(losses[honest])
            forged = self._forged_ballots(request, losses[attackers], losses[honest], ballots)
            return [*zip(honest, ballots, strict=True), *zip(attackers, forged, strict=True)]

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
            rng=rng_for(self.experiment.seed, "vote", request.round_index),
        )

    def losses(self, candidates: ModelList) -> Losses:
        """Every client's validation loss of every candidate, (num_clients, candidates)."""
        with self._timed("evaluation"):
            return self._losses(candidates)

    def judge(self, vector: Parameters) -> NDArray[np.float64]:
        """Every client's validation loss of one model."""
        return finite_or_inf(self._client_means(image_losses, vector, self.data.validation))

    def known_losses(self, ids: Iterable[int]) -> tuple[list[int], list[float]]:
        """Those of the models that have been judged, and the mean over all clients of each one's loss."""
        judged = [model for model in ids if model in self._losses.known]
        return judged, [float(self._losses.known[model].mean()) for model in judged]

    @property
    def evaluations(self) -> Counter[int]:
        """How often the validation losses of each model, by id, were computed."""
        return self._losses.computed

    # Testing

    def accuracies(self, candidates: ModelList) -> NDArray[np.float64]:
        """Every client's test accuracy of every model, (num_clients, models)."""
        with self._timed("testing"):
            return self._accuracies(candidates)

    def test(self, vector: Parameters) -> NDArray[np.float64]:
        """Every client's test accuracy of one model."""
        accuracies: NDArray[np.float64] = self._client_means(image_hits, vector, self.data.test).cpu().numpy()
        return accuracies

    def deployed_accuracy(self, candidates: ModelList) -> float:
        """The mean test accuracy of honest clients, each with the model of its lowest validation loss."""
        chosen = self.losses(candidates).argmin(1)
        return float(self.accuracies(candidates)[self.honest, chosen[self.honest]].mean())

    def _client_means(self, measure: Measure, vector: Parameters, shards: Shards) -> Tensor:
        """The mean of a measure of one model for every client, in one pass over all their images."""
        values = measure(self.logits(vector, shards.images), shards.labels)
        sizes = torch.from_numpy(shards.sizes).to(values.device)
        return torch.segment_reduce(values.double(), "mean", lengths=sizes)

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        began = perf_counter()
        yield
        self.seconds[phase] += perf_counter() - began


def _rows(updates: dict[Client, Parameters], clients: Iterable[Client]) -> Updates:
    return torch.stack([updates[client] for client in clients])
