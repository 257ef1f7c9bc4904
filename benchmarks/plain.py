"""The plain loop: what everybody writes first, in torch and nothing else.

One client after the other, a copy of the module each, `torch.optim.SGD` and a `DataLoader`; then loops over pairs
of clients. It is the yardstick for speed, and the results are those of lidfl.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from numpy.random import Generator
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.problem import Problem

Attack: TypeAlias = Literal["sign_flip", "lie"]
Batch: TypeAlias = tuple[Tensor, Tensor]
Groups: TypeAlias = list[list[int]]

EVALUATION_BATCH = 64
LIE_DEVIATIONS = 20.0


# Training


def flat(module: nn.Module) -> Tensor:
    """A module's parameters as one vector of its own."""
    return parameters_to_vector(module.parameters()).detach()


def module_of(problem: Problem, vector: Tensor) -> nn.Module:
    """A module with the given parameters; the vector itself is never written to."""
    module = problem.module()
    vector_to_parameters(vector.clone(), module.parameters())
    return module


def loader(problem: Problem, client: int) -> DataLoader[tuple[Tensor, ...]]:
    """A client's training data, shuffled anew in every pass, in whole batches as lidfl has them."""
    images = problem.train_images[client]
    whole_batches = len(images) >= problem.batch_size
    data = TensorDataset(images, problem.train_labels[client])
    return DataLoader(data, problem.batch_size, shuffle=True, drop_last=whole_batches)


def cycle(batches: DataLoader[tuple[Tensor, ...]]) -> Iterator[Batch]:
    """Batches without end, pass after pass."""
    while True:
        yield from batches


def train(problem: Problem, client: int, module: nn.Module) -> None:
    """Train a module in place on one client's data."""
    module.train()
    optimizer = torch.optim.SGD(module.parameters(), lr=problem.learning_rate, momentum=problem.momentum)
    batches = cycle(loader(problem, client))
    for _ in range(problem.steps):
        images, labels = next(batches)
        optimizer.zero_grad()
        F.cross_entropy(module(images), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def train_client(problem: Problem, client: int, start: Tensor) -> Tensor:
    """One client's update, w_τ − w_0."""
    module = module_of(problem, start)
    train(problem, client, module)
    return flat(module) - start


def train_all(problem: Problem, start: Tensor) -> Tensor:
    """The updates of all clients, (clients, dim)."""
    return torch.stack([train_client(problem, client, start) for client in range(problem.num_clients)])


# Evaluation


@torch.no_grad()
def evaluate(problem: Problem, vector: Tensor) -> list[float]:
    """The mean validation loss of a model for every client, one after the other."""
    module = module_of(problem, vector).eval()
    data = zip(problem.validation_images, problem.validation_labels, strict=True)
    return [mean_loss(module, images, labels) for images, labels in data]


def mean_loss(module: nn.Module, images: Tensor, labels: Tensor) -> float:
    """A module's mean loss over some images, a batch at a time."""
    total = 0.0
    for some_images, some_labels in DataLoader(TensorDataset(images, labels), EVALUATION_BATCH):
        total += F.cross_entropy(module(some_images), some_labels, reduction="sum").item()
    return total / len(images)


# One round of LiD-FL


@dataclass(frozen=True)
class Candidate:
    """A model of the list."""

    vector: Tensor
    losses: list[float] | None = None
    """Each client's validation loss, once it is known: a model is judged only once."""
    age: int = 0


def lid_round(
    problem: Problem, models: list[Candidate], byzantine: frozenset[int], attack: Attack, rng: Generator
) -> list[Candidate]:
    """A whole round: one client trains one model, everyone votes, the least-voted model goes."""
    parent = models[int(rng.integers(len(models)))].vector
    worker = int(rng.integers(problem.num_clients))
    update = sent_update(problem, worker, parent, byzantine, attack)
    candidates = [judged(problem, model) for model in [*models, Candidate(parent + update)]]
    votes = tally(candidates, byzantine)
    order = range(len(candidates))
    loser = min(order, key=lambda position: (votes[position], -candidates[position].age, position))
    survivors = [candidates[position] for position in order if position != loser]
    return [replace(model, age=model.age + 1) for model in survivors]


def sent_update(problem: Problem, worker: int, parent: Tensor, byzantine: frozenset[int], attack: Attack) -> Tensor:
    """What a client sends: its update or, if it is Byzantine, what the attack makes of its own or all honest ones.

    LIE needs all honest clients' updates, so that all of them train.
    """
    if worker not in byzantine:
        return train_client(problem, worker, parent)
    if attack == "sign_flip":
        return -train_client(problem, worker, parent)
    honest = [client for client in range(problem.num_clients) if client not in byzantine]
    updates = torch.stack([train_client(problem, client, parent) for client in honest])
    return updates.mean(0) - LIE_DEVIATIONS * updates.std(0, correction=0)


def judged(problem: Problem, model: Candidate) -> Candidate:
    """A model with every client's loss of it."""
    return model if model.losses is not None else replace(model, losses=evaluate(problem, model.vector))


def tally(candidates: list[Candidate], byzantine: frozenset[int]) -> list[int]:
    """Votes by candidate: honest clients vote for their lowest loss, Byzantine ones for their highest (Worst)."""
    losses = np.array([model.losses for model in candidates])
    losses[~np.isfinite(losses)] = np.inf
    votes = [0] * len(candidates)
    for client, column in enumerate(losses.T):
        if client in byzantine:
            votes[int(column.argmax())] += 1
        elif np.isfinite(column.min()):
            votes[int(column.argmin())] += 1
    return votes


# Aggregation


def mean(updates: Tensor) -> Tensor:
    """FedAvg with equal weights."""
    return updates.mean(0)


def median(updates: Tensor) -> Tensor:
    """The median of each coordinate; of an even number, the lower of the middle two."""
    return updates.median(0).values


def pairwise_distances(updates: Tensor) -> list[list[float]]:
    """‖uᵢ − uⱼ‖ for all pairs, one pair after the other."""
    return [[torch.dist(one, other).item() for other in updates] for one in updates]


def krum(updates: Tensor, num_byzantine: int) -> Tensor:
    """The update with the least sum of squared distances to its n − f − 2 nearest (Blanchard et al. 2017)."""
    distances = pairwise_distances(updates)
    neighbours = max(1, len(updates) - num_byzantine - 2)
    scores = [sum(distance**2 for distance in sorted(row)[1 : neighbours + 1]) for row in distances]
    return updates[scores.index(min(scores))]


def rknn(updates: Tensor, num_honest: int, rng: Generator) -> Groups:
    """Random k nearest neighbours (paper, algorithm 2): a random update and its k nearest, then among the rest."""
    distances = pairwise_distances(updates)
    left = list(range(len(updates)))
    groups = []
    while left:
        centre = int(rng.choice(left))
        group = sorted(left, key=lambda row: distances[centre][row])[:num_honest]
        groups.append(group)
        left = [row for row in left if row not in group]
    return groups


def meb(updates: Tensor, num_honest: int) -> Groups:
    """Minimum enclosing balls (paper, algorithm 3): the k updates in the tightest ball, then among the rest."""
    distances = pairwise_distances(updates)
    left = list(range(len(updates)))
    groups = []
    while left:
        balls = [sorted(left, key=lambda row: distances[centre][row])[:num_honest] for centre in left]
        radii = [distances[centre][ball[-1]] for centre, ball in zip(left, balls, strict=True)]
        group = balls[radii.index(min(radii))]
        groups.append(group)
        left = [row for row in left if row not in group]
    return groups
