"""What a client with hardly any data should deploy, and one that has none.

    python -m experiments.newcomers      runs, and writes docs/newcomers.json; docs/beyond.md has its table

The list is made by `lidfl-ranked` as always; afterwards each honest client chooses from it by its first few
validation images alone, as one would who joins late. Whoever has none can only take a model on trust. Worst votes
fill the list with what serves nobody; colluding ones would rather keep what honest votes split between.
"""

import json
import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from lidfl import Experiment, RunDirectory, run
from lidfl.methods.deploying import alike, best, joined
from lidfl.runs.summary import source_commit
from lidfl.simulation.deploying import SimulatedOwn
from lidfl.simulation.simulator import Simulator
from lidfl.types import Client, Models, Parameters

OUT = Path(__file__).parents[1] / "docs" / "newcomers.json"
SEEDS = (2024, 2025, 2026)
IMAGES = (1, 2, 5, 10, 20, 50, 1_000_000)
ATTACKS, VOTES = ("sign_flip", "lie"), ("worst", "coordinated")


class Newcomer(SimulatedOwn):
    """A client that has a few validation images only."""

    def __init__(self, client: Client, simulator: Simulator, images: int) -> None:
        super().__init__(client, simulator.workshop, simulator.judges)
        self.images = images

    def values(self, models: Models) -> NDArray[np.float64]:
        """Its judgement of each model, image by image."""
        return super().values(models)[:, : self.images]

    def losses(self, models: Models) -> NDArray[np.float64]:
        """Its judgement of each model."""
        means: NDArray[np.float64] = self.values(models).mean(1)
        return np.where(np.isfinite(means), means, np.inf)


def accuracy(simulator: Simulator, clients: Sequence[Client], model: Parameters) -> float:
    """The mean test accuracy of these clients with a model."""
    return float(simulator.judges.accuracy(model, np.array(sorted(clients))).mean())


def by_images(simulator: Simulator, models: Models, clients: Sequence[Client]) -> dict[str, dict[str, float]]:
    """What clients deploy by so many images, for two rules."""
    found: dict[str, dict[str, float]] = {}
    for images in IMAGES:
        owns = [Newcomer(client, simulator, images) for client in clients]
        told = "all" if images == IMAGES[-1] else str(images)
        found[told] = {
            rule.__name__: fmean(accuracy(simulator, [own.client], rule(models, own)) for own in owns)
            for rule in (best, alike)
        }
    return found


def on_trust(
    simulator: Simulator, models: Models, votes: Sequence[int], clients: Sequence[Client]
) -> dict[str, float]:
    """What one without data gets: from the list, from the last vote, from those whom it trusts."""
    rounds = simulator.experiment.rounds
    owns = (Newcomer(client, simulator, IMAGES[-1]) for client in clients)
    deployed = [joined(models, own, rounds) for own in owns]
    each = [accuracy(simulator, clients, model) for model in models]
    return {
        "any model of the list": fmean(each),
        "the worst model of the list": min(each),
        "the mean of the list": accuracy(simulator, clients, models.mean(0)),
        "the model with most first choices": each[int(np.argmax(votes))],
        "what one honest client deploys": fmean(accuracy(simulator, clients, model) for model in deployed),
    }


def measure(fraction: float, vote_attack: str, attack: str, seed: int) -> dict[str, object]:
    """One list, and what newcomers make of it."""
    with tempfile.TemporaryDirectory() as folder:
        against = dict(byzantine_fraction=fraction, attack=attack, vote_attack=vote_attack, seed=seed)
        wanted = against | dict(dataset="femnist", method="lidfl-ranked", out=str(Path(folder) / "run"))
        experiment = Experiment.of(wanted)
        run(experiment)
        directory = RunDirectory(experiment.out)
        models, last = directory.final_state().models, list(directory.records())[-1]
    simulator = Simulator.of(experiment)
    honest = sorted(set(range(experiment.num_clients)) - simulator.cast.byzantine)
    votes = [last.votes.get(model, 0) for model in models.ids]
    return against | dict(
        commit=source_commit(),
        images=by_images(simulator, models.parameters, honest),
        trust=on_trust(simulator, models.parameters, votes, honest),
    )


if __name__ == "__main__":
    found = [measure(*case) for case in product((0.6, 0.8), VOTES, ATTACKS, SEEDS)]
    OUT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
