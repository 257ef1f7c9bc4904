"""Whether anything that an honest client can do with its own data takes a backdoor out of what it deploys.

    python -m experiments.backdoor      runs, and writes docs/backdoor.json; docs/adversary.md has its table

Tried on the model that each honest client picks: training it on its own data; folding inputs that never change in
its own data into the biases, so that nothing can be read from them; taking out hidden units that its own data
hardly uses (fine-pruning, Liu et al. 2018). And picking another: by the errors of the class that fares worst.
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
from lidfl.types import Client, Models, Parameters

OUT = Path(__file__).parents[1] / "docs" / "backdoor.json"
SEEDS = (2024, 2025, 2026)
SETTINGS = [("digits", "lr", 20), ("digits", "mlp", 20), ("femnist", "lr", 25)]
TUNINGS = 10
"""Local trainings of what was picked."""

PRUNED_COST = 0.02
"""By how much own validation accuracy may fall while units are taken out."""

Treat: TypeAlias = Callable[[Simulator, Client, Parameters, Models], Parameters]


def as_picked(_simulator: Simulator, _client: Client, model: Parameters, _models: Models) -> Parameters:
    """The model as it was picked."""
    return model


def by_class(simulator: Simulator, client: Client, _model: Parameters, models: Models) -> Parameters:
    """The model whose worst class has the fewest errors on own validation images; of equals the first."""
    images, labels = simulator.data.validation.of(client)

    def worst(model: Parameters) -> float:
        wrong = (~image_hits(simulator.judges.validation.logits(model, images), labels)).double()
        return max(float(wrong[labels == label].mean()) for label in set(labels.tolist()))

    return models[min(range(len(models)), key=lambda place: worst(models[place]))]


def pruned(simulator: Simulator, client: Client, model: Parameters, _models: Models) -> Parameters:
    """The model without the hidden units that own data uses least, while own validation accuracy allows it."""
    sizes = simulator.network.sizes
    if len(sizes) != 4:  # no hidden layer, or several
        return model
    images, labels = simulator.data.validation.of(client)
    train = simulator.data.train.of(client)[0].flatten(1)
    weight, bias = torch.split(model, sizes)[:2]
    activity = (train @ weight.view(-1, train.shape[1]).T + bias).relu().mean(0)

    def accuracy_of(candidate: Parameters) -> float:
        return float(image_hits(simulator.judges.validation.logits(candidate, images), labels).double().mean())

    enough, kept = accuracy_of(model) - PRUNED_COST, model
    for unit in activity.argsort().tolist():
        smaller = kept.clone()
        torch.split(smaller, sizes)[2].view(-1, len(bias))[:, unit] = 0
        if accuracy_of(smaller) < enough:
            break
        kept = smaller
    return kept


def tuned(simulator: Simulator, client: Client, model: Parameters, _models: Models) -> Parameters:
    """The model after some local trainings on own data."""
    own = SimulatedOwn(client, simulator.workshop, simulator.judges)
    for part in range(TUNINGS):
        model = own.trained(model, part)
    return model


def folded(simulator: Simulator, client: Client, model: Parameters, _models: Models) -> Parameters:
    """The model with all inputs that are constant in own data folded into the biases of the first layer."""
    images = simulator.data.train.of(client)[0].flatten(1)
    constant = images.std(0) < 1e-6
    parts = list(torch.split(model.clone(), simulator.network.sizes))
    weight = parts[0].view(-1, images.shape[1])
    parts[1] += weight[:, constant] @ images.mean(0)[constant]
    weight[:, constant] = 0
    return torch.cat(parts)


def both(simulator: Simulator, client: Client, model: Parameters, models: Models) -> Parameters:
    """Folded, then trained on own data."""
    return tuned(simulator, client, folded(simulator, client, model, models), models)


def pruned_tuned(simulator: Simulator, client: Client, model: Parameters, models: Models) -> Parameters:
    """Pruned, then trained on own data, as its authors do."""
    return tuned(simulator, client, pruned(simulator, client, model, models), models)


TREATMENTS: dict[str, Treat] = {
    "as picked": as_picked,
    "picked by its worst class": by_class,
    "tuned": tuned,
    "pruned": pruned,
    "pruned, tuned": pruned_tuned,
    "folded": folded,
    "folded, tuned": both,
}


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
            used = treat(simulator, client, picked, models)
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
