"""Where simulated clients work: their training data, poisoned where that is the attack, and an engine for it."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lidfl.adversaries.attacks import attack
from lidfl.adversaries.backdoors import Poison, Send, trigger_of
from lidfl.data.shards import DrawnShards, FederatedData
from lidfl.errors import LidflError
from lidfl.learning.client import LocalTraining, Pull, draw_batches
from lidfl.learning.engines import ENGINES, Engine, Jobs, candidate_engines, engines_here, fastest_engine
from lidfl.learning.native import NativeUnavailable
from lidfl.learning.parameters import Network
from lidfl.seeds import rng_for, seed_for
from lidfl.settings.answers import as_labels, as_poisoned, refusal
from lidfl.settings.experiment import Experiment
from lidfl.simulation.cast import Cast
from lidfl.types import Client, Models, Position

Job: TypeAlias = tuple[Client, Position]
"""A local training: who trains, and which model of the list."""

SURE = {"sparse", "linear", "native"}
"""Engines that need no trial where they come first; among others, a short one decides."""


class Workshop:
    """All clients' training data, and an engine."""

    def __init__(self, experiment: Experiment, data: FederatedData, network: Network, cast: Cast) -> None:
        self.experiment = experiment
        self.data = data
        self.network = network
        self.cast = cast
        self.attack = attack.resolve(experiment.attack)
        self.poisons_data = "labels" in self.attack.wants
        self.work = LocalTraining(
            experiment.local_steps, experiment.batch_size, experiment.learning_rate, experiment.momentum
        )
        self.send: Send | None = None
        """What attackers who poison data make of an update before they send it."""
        self.images, self.labels = self._training_data()
        self.engine_name = self._engine_name()
        self.engine = self._build_engine(self.engine_name)

    def alike(
        self,
        jobs: Sequence[Job],
        models: Models,
        round_index: int,
        purpose: str,
        steps: int,
        pull: Pull | None = None,
    ) -> Iterator[tuple[list[Job], Jobs]]:
        """Trainings in sets of equal shape, as an engine takes them; batches are drawn for a purpose."""
        clients = {client for client, _ in jobs}
        batches = {client: self._batches(client, round_index, purpose)[:steps] for client in clients}
        for size in sorted({rows.shape[1] for rows in batches.values()}):
            group = [job for job in jobs if batches[job[0]].shape[1] == size]
            starts = models[[parent for _, parent in group]]
            rows = torch.from_numpy(np.stack([batches[client] for client, _ in group])).to(starts.device)
            seeds = (seed_for(self.experiment.seed, "dropout", round_index, client) for client, _ in group)
            yield group, Jobs(starts, rows, tuple(seeds), pull)

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
        self._refuse_classes_that_are_not_there()
        rng = rng_for(self.experiment.seed, "poison")
        num_classes = self.data.num_classes
        known = dict(images=shards.images, labels=shards.labels, owners=self._ranked(owners))
        made = self.attack(**known, num_classes=num_classes, rng=rng)
        if isinstance(made, Poison):
            self.send = made.send
            made = made.images, made.labels
        images, labels = self._poisoned(made)
        images = torch.where(theirs[:, None, None, None], images, shards.images)
        return images, torch.where(theirs, labels, shards.labels)

    def _refuse_classes_that_are_not_there(self) -> None:
        """Refuse a backdoor to or from a class that the data does not have."""
        trigger, classes = trigger_of(self.attack), self.data.num_classes
        for name in ("target", "source"):
            if getattr(trigger, name, 0) >= classes:
                raise LidflError(
                    f"option '{name}' of attack '{self.attack.name}' must be a class of the data, from 0 to "
                    f"{classes - 1}, not {getattr(trigger, name)}"
                )

    def _poisoned(self, made: object) -> tuple[Tensor, Tensor]:
        """What an attack on data gives: images and labels, or labels alone."""
        shards, name = self.data.train, self.attack.name
        wanted = f"images of shape {tuple(shards.images.shape)}, or labels alone"
        if not isinstance(made, tuple):
            return shards.images, as_labels(name, made, shards.labels, self.data.num_classes)
        if len(made) != 2:
            raise refusal("attack", name, made, "images and labels, or labels alone")
        images, labels = made
        whole = as_poisoned(name, images, shards.images, wanted)
        return whole, as_labels(name, labels, shards.labels, self.data.num_classes)

    def _ranked(self, owners: NDArray[np.int64]) -> NDArray[np.int64]:
        """The place of each owner among Byzantine clients, so that colluders can deal work to each other."""
        rank = np.zeros(self.experiment.num_clients, dtype=np.int64)
        rank[sorted(self.cast.byzantine)] = np.arange(len(self.cast.byzantine))
        return rank[owners]

    def _engine_name(self) -> str:
        """The engine that was asked for, if it can train the model, or the fastest that can."""
        asked = self.experiment.engine
        if asked == "auto":
            names = engines_here(self.network, self.images)
            return names[0] if names[0] in SURE else fastest_engine(self._build_engine, names, self._trial_jobs())
        names = candidate_engines(self.network, self.images)
        if asked not in {*names, "loop"}:
            raise LidflError(
                f"engine '{asked}' cannot train model '{self.experiment.model}' here; choose {names[0]}"
            )
        return asked

    def _build_engine(self, name: str) -> Engine:
        try:
            return ENGINES[name](self.network, self.work, self.images, self.labels)
        except NativeUnavailable as reason:
            instead = candidate_engines(self.network, self.images)[1]
            raise LidflError(f'{reason}; set engine="{instead}"') from None

    def _trial_jobs(self) -> Jobs:
        """A few steps of a few clients, to try engines with."""
        clients = range(min(8, self.experiment.num_clients))
        batches = [self._batches(client, 0, "batch")[:4] for client in clients]
        size = min(rows.shape[1] for rows in batches)
        rows = torch.from_numpy(np.stack([batch[:, :size] for batch in batches])).to(self.experiment.device)
        return Jobs(self.network.initial().expand(len(clients), -1), rows, tuple(clients))
