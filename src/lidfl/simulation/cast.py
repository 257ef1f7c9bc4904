"""Who plays whom in a simulation. On the server's side there is no such thing."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lidfl.seeds import rng_for
from lidfl.settings.experiment import Experiment
from lidfl.settings.world import draw_byzantine
from lidfl.types import Client

AUDIENCE = 10_000
"""Over so many clients results are averaged at most."""


@dataclass(frozen=True)
class Cast:
    """The clients of an experiment and what they are."""

    byzantine: frozenset[Client]
    honest: list[Client]
    everyone: NDArray[np.int64]
    audience: NDArray[np.int64]
    """The clients over whom results are averaged: all, or of a great many a sample."""

    @classmethod
    def of(cls, experiment: Experiment) -> "Cast":
        """Who is who in an experiment."""
        byzantine = draw_byzantine(experiment)
        honest = [client for client in range(experiment.num_clients) if client not in byzantine]
        return cls(byzantine, honest, np.arange(experiment.num_clients), draw_audience(experiment))

    def are_byzantine(self, clients: Iterable[Client]) -> NDArray[np.bool_]:
        """For each of some clients, whether it is Byzantine."""
        return np.array([client in self.byzantine for client in clients])


def draw_audience(experiment: Experiment) -> NDArray[np.int64]:
    """All clients, or of a great many a sample."""
    if experiment.num_clients <= AUDIENCE:
        return np.arange(experiment.num_clients)
    rng = rng_for(experiment.seed, "audience")
    return np.sort(rng.choice(experiment.num_clients, AUDIENCE, replace=False))
