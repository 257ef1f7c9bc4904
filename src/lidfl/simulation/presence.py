"""Who is there: clients that come and go, honest ones by chance, Byzantine ones when it suits them."""

import numpy as np
from numpy.typing import NDArray

from lidfl.seeds import rng_for
from lidfl.settings.experiment import Experiment
from lidfl.simulation.cast import Cast
from lidfl.types import Client

SPELL = 3
"""Rounds that an absence lasts at least."""


class Presence:
    """Tells who answers at a moment."""

    def __init__(self, experiment: Experiment, cast: Cast) -> None:
        self.experiment = experiment
        self.cast = cast
        self.offsets = rng_for(experiment.seed, "spell").integers(SPELL, size=experiment.num_clients)

    def absent(self, moment: int) -> frozenset[Client]:
        """The clients that do not answer.

        Byzantine clients who come and go come together, when fewer honest ones than usual are there.
        """
        if self.experiment.availability == 1:
            return frozenset()
        away = self._away(moment)
        honest = frozenset(client for client in self.cast.honest if away[client])
        if self.experiment.absent == "honest":
            return honest
        byzantine = self.cast.byzantine
        if self.experiment.absent == "byzantine":
            return frozenset(client for client in byzantine if away[client])
        usual = (1 - self.experiment.availability) * len(self.cast.honest)
        return honest if len(honest) > usual else honest | byzantine

    def _away(self, moment: int) -> NDArray[np.bool_]:
        """Of each client whether chance keeps it away; it decides anew after each spell."""
        spells = (moment + self.offsets) // SPELL
        drawn = {spell: self._draw(int(spell)) for spell in np.unique(spells)}
        return np.array([drawn[spell][client] for client, spell in enumerate(spells)])

    def _draw(self, spell: int) -> NDArray[np.bool_]:
        rng = rng_for(self.experiment.seed, "presence", spell)
        return rng.random(self.experiment.num_clients) >= self.experiment.availability
