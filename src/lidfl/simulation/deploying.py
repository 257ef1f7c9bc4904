"""What honest clients of a simulation deploy, each by its own data."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from lidfl.learning.client import finite_or_inf
from lidfl.methods.deploying import deploy, trained_alone
from lidfl.protocol import ModelList
from lidfl.settings.answers import as_vector
from lidfl.simulation.judging import Judges
from lidfl.simulation.workshop import Workshop
from lidfl.types import Client, Models, Parameters

REMEMBERED = 200
"""So many clients are remembered at most."""


class SimulatedOwn:
    """What a simulated client can do with its own data."""

    def __init__(self, client: Client, workshop: Workshop, judges: Judges) -> None:
        self.client = client
        self.workshop = workshop
        self.judges = judges
        self.trainings = 0
        """How many local trainings what it last made took, or would have taken anew."""
        self._alone: dict[int, Parameters] = {}

    def losses(self, models: Models) -> NDArray[np.float64]:
        """Its judgement of each model."""
        return finite_or_inf(self.judges.validation.means(models, np.array([self.client]))[:, 0])

    def values(self, models: Models) -> NDArray[np.float64]:
        """The same image by image."""
        return self.judges.validation.values(models, self.client).numpy()

    def alone(self, rounds: int) -> Parameters:
        """What it would have without the others, computed once."""
        if rounds in self._alone:
            self.trainings += rounds
        else:
            self._alone[rounds] = trained_alone(self, rounds)
        return self._alone[rounds]

    def trained(self, model: Parameters, part: int) -> Parameters:
        """A model after one more local training."""
        self.trainings += 1
        steps = self.workshop.work.steps
        ((_, job),) = self.workshop.alike([(self.client, 0)], model[None], part, "tune", steps)
        reached = model + self.workshop.engine(job)[0]
        return reached if bool(reached.isfinite().all()) else model

    def first(self) -> Parameters:
        """The model that everything began with."""
        return self.workshop.network.initial()


class Deployment:
    """The models that clients take; what was last asked for is remembered."""

    def __init__(self, workshop: Workshop, judges: Judges) -> None:
        self.experiment = workshop.experiment
        self.workshop = workshop
        self.judges = judges
        self.rule = deploy.resolve(self.experiment.deploy)
        self._trainings = 0
        self._owns: dict[Client, SimulatedOwn] = {}
        self._last: tuple[tuple[object, ...], Models] | None = None

    def taken(self, models: ModelList, clients: Sequence[Client]) -> Models:
        """The model that each client takes, one a row."""
        asked = (models.ids, tuple(clients))
        if self._last is None or self._last[0] != asked:
            self._last = asked, self._take(models, clients)
        return self._last[1]

    @property
    def steps(self) -> int:
        """How many gradient steps it took all clients together to make what they last took."""
        return self._trainings * self.workshop.work.steps

    def _take(self, models: ModelList, clients: Sequence[Client]) -> Models:
        self._trainings = 0
        if self.experiment.plays.personal:  # there is a row for each client
            return models.parameters[list(clients)]
        if self.rule.name == "best":  # of which all losses are known already
            return models.parameters[self.judges.losses(models, np.array(clients)).argmin(1).tolist()]
        with self.judges.stopwatch.timed("deployment"):
            return torch.stack([self._one(models.parameters, client) for client in clients])

    def _one(self, models: Models, client: Client) -> Parameters:
        own = self._own(client)
        taken = self.rule(models, own, rounds=self.experiment.rounds)
        self._trainings += own.trainings
        return as_vector("deploy rule", self.rule.name, taken, models[0])

    def _own(self, client: Client) -> SimulatedOwn:
        """A client with its data; some are remembered, with what they trained alone."""
        own = self._owns.get(client) or SimulatedOwn(client, self.workshop, self.judges)
        own.trainings = 0
        if len(self._owns) < REMEMBERED:
            self._owns[client] = own
        return own

    def groups(self, models: ModelList, clients: Sequence[Client]) -> Iterator[tuple[Parameters, list[Client]]]:
        """Each model that is taken, with those who take it."""
        if self.rule.name == "best" and not self.experiment.plays.personal:
            chosen = self.judges.losses(models, np.array(clients)).argmin(1)
            for position in np.unique(chosen).tolist():
                takers = [client for client, place in zip(clients, chosen, strict=True) if place == position]
                yield models.parameters[position], takers
        else:
            yield from (
                (model, [client]) for model, client in zip(self.taken(models, clients), clients, strict=True)
            )

    def accuracies(self, models: ModelList, clients: Sequence[Client]) -> NDArray[np.float64]:
        """The test accuracy of each client with the model that it takes."""
        if self.rule.name == "best" and not self.experiment.plays.personal:
            everyone = self.judges.accuracies(models, np.array(clients))
            chosen = self.judges.losses(models, np.array(clients)).argmin(1)
            deployed: NDArray[np.float64] = everyone[np.arange(len(chosen)), chosen]
            return deployed
        with self.judges.stopwatch.timed("deployment"):
            taken = zip(self.taken(models, clients), clients, strict=True)
            return np.array([self.judges.accuracy(model, np.array([client]))[0] for model, client in taken])
