"""Whether anything that an honest client can do with its own data takes a backdoor out of what it deploys.

    python -m experiments.backdoor      runs, and writes docs/backdoor.json; docs/adversary.md has its table

Tried on the model that each honest client picks: training it on its own data, and folding inputs that never change
in its own data into the biases, so that nothing can be read from them.
"""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

import torch
from torch import Tensor

from lidfl import Experiment, RunDirectory, run
from lidfl.adversaries.backdoors import AnyTrigger, trigger_of
from lidfl.learning.client import image_hits
from lidfl.runs.summary import source_commit
from lidfl.simulation.deploying import SimulatedOwn
from lidfl.simulation.simulator import Simulator
from lidfl.types import Client, Parameters

OUT = Path(__file__).parents[1] / "docs" / "backdoor.json"
SEEDS = (2024, 2025, 2026)
SETTINGS = [("digits", "lr", 60), ("digits", "mlp", 60), ("femnist", "lr", 30)]
TUNINGS = 10
"""Local trainings of what was picked."""

Treat: TypeAlias = Callable[[Simulator, Client, Parameters], Parameters]


def as_picked(_simulator: Simulator, _client: Client, model: Parameters) -> Parameters:
    """The model as it was picked."""
    return model


def tuned(simulator: Simulator, client: Client, model: Parameters) -> Parameters:
    """The model after some local trainings on own data."""
    own = SimulatedOwn(client, simulator.workshop, simulator.judges)
    for part in range(TUNINGS):
        model = own.trained(model, part)
    return model


def folded(simulator: Simulator, client: Client, model: Parameters) -> Parameters:
    """The model with all inputs that are constant in own data folded into the biases of the first layer."""
    images = simulator.data.train.of(client)[0].flatten(1)
    constant = images.std(0) < 1e-6
    parts = list(torch.split(model.clone(), simulator.network.sizes))
    weight = parts[0].view(-1, images.shape[1])
    parts[1] += weight[:, constant] @ images.mean(0)[constant]
    weight[:, constant] = 0
    return torch.cat(parts)


def both(simulator: Simulator, client: Client, model: Parameters) -> Parameters:
    """Folded, then trained on own data."""
    return tuned(simulator, client, folded(simulator, client, model))


TREATMENTS: dict[str, Treat] = {"as picked": as_picked, "tuned": tuned, "folded": folded, "folded, tuned": both}


def success(simulator: Simulator, client: Client, model: Parameters, trigger: AnyTrigger) -> float:
    """The share of a client's triggered test images of other classes that are taken for the target."""
    images, labels = simulator.data.test.of(client)
    said = simulator.judges.testing.logits(model, trigger.stamped(images[labels != trigger.target]))
    return float((said.argmax(1) == trigger.target).double().mean())


def accuracy(simulator: Simulator, client: Client, model: Parameters) -> float:
    """The accuracy on a client's clean test images."""
    images, labels = simulator.data.test.of(client)
    hits: Tensor = image_hits(simulator.judges.testing.logits(model, images), labels)
    return float(hits.double().mean())


def measured(dataset: str, model: str, rounds: int, seed: int) -> dict[str, tuple[float, float]]:
    """For each treatment how often the trigger works on what honest clients have, and their accuracy."""
    with tempfile.TemporaryDirectory() as folder:
        settings = dict(dataset=dataset, model=model, method="lidfl-ranked", attack="backdoor:value=4")
        experiment = Experiment.of(
            settings | dict(vote_attack="none", rounds=rounds, eval_every=rounds, seed=seed, out=f"{folder}/run")
        )
        run(experiment)
        models = RunDirectory(experiment.out).final_state().models.parameters
    simulator = Simulator.of(experiment)
    trigger = trigger_of(simulator.workshop.attack)
    assert trigger is not None
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in TREATMENTS}
    for client in simulator.cast.honest:
        own = SimulatedOwn(client, simulator.workshop, simulator.judges)
        picked = models[int(own.losses(models).argmin())]
        for name, treat in TREATMENTS.items():
            used = treat(simulator, client, picked)
            found[name].append((success(simulator, client, used, trigger), accuracy(simulator, client, used)))
    return {name: (fmean(a for a, _ in told), fmean(b for _, b in told)) for name, told in found.items()}


def main() -> None:
    """Measure all, and write."""
    lines = []
    for dataset, model, rounds in SETTINGS:
        told = [measured(dataset, model, rounds, seed) for seed in SEEDS]
        for name in TREATMENTS:
            works, clean = (fmean(one[name][place] for one in told) for place in (0, 1))
            lines.append(dict(dataset=dataset, model=model, treatment=name, success=works, accuracy=clean))
    OUT.write_text(json.dumps(dict(seeds=SEEDS, commit=source_commit(), rows=lines), indent=1) + "\n")


if __name__ == "__main__":
    main()
