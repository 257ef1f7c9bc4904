"""What honest clients heed besides the loss of a model: how far it lies from the list, and what becomes of it.

**Reach.** Training takes a model only so far. What lies further from the nearest model of the list than a client's
own training would have taken it, times a factor, that client puts last. It knows its reach from training that it
trusts: of the model that it liked best, in this round, or else of the very first model.

**Lookahead.** A client may take a few gradient steps on its own data before it judges, so that what cannot be
trained loses.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from lidfl.learning.client import beyond_reach, finite_or_inf
from lidfl.methods.elections import put_last
from lidfl.protocol import Choose, Vote
from lidfl.settings.experiment import Experiment
from lidfl.simulation.judging import Judges
from lidfl.simulation.training import Training
from lidfl.types import Client, Losses

Lengths = Mapping[Client, float]
"""How long the updates were that clients trained in this round, of models that they liked best."""


class Wariness:
    """How honest clients judge, with what they heed."""

    def __init__(self, experiment: Experiment, training: Training, judges: Judges) -> None:
        self.experiment = experiment
        self.training = training
        self.judges = judges

    def judged(self, losses: Losses, request: Vote | Choose, clients: Sequence[Client], lengths: Lengths) -> Losses:
        """Losses by which these clients rank the models of a request, (clients, models)."""
        if self.experiment.lookahead:
            losses = self._ahead(request, clients)
        if self.experiment.reach:
            reaches = self.experiment.reach * np.array([lengths.get(c) or self._first_lengths[c] for c in clients])
            losses = put_last(losses, beyond_reach(request.models, request.known, reaches))
        return losses

    def _ahead(self, request: Vote | Choose, clients: Sequence[Client]) -> Losses:
        """The losses after a few steps of each client from each model."""
        steps, models = self.experiment.lookahead, request.models
        jobs = [(client, place) for client in clients for place in range(len(models))]
        losses = np.empty((len(clients), len(models)))
        with self.judges.stopwatch.timed("lookahead"):
            for group, alike in self.training.alike(jobs, models, request.round_index, "lookahead", steps):
                reached = alike.starts + self.training.engine(alike)
                for (client, place), model in zip(group, reached, strict=True):
                    loss = finite_or_inf(self.judges.validation.means(model[None], np.array([client])))
                    losses[clients.index(client), place] = loss[0, 0]
        return losses

    @cached_property
    def _first_lengths(self) -> NDArray[np.float64]:
        """How far each honest client's training takes the first model; 0 for the others, who do not need it."""
        lengths = np.zeros(self.experiment.num_clients)
        jobs = [(client, 0) for client in self.training.cast.honest]
        first = self.training.network.initial()[None]
        for group, alike in self.training.alike(jobs, first, 0, "reach", self.experiment.local_steps):
            updates = torch.linalg.vector_norm(self.training.engine(alike), dim=1).tolist()
            for (client, _), length in zip(group, updates, strict=True):
                lengths[client] = length
        return lengths
