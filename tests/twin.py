"""A second simulator, as naive as the paper reads: one client after the other, plain nn.Module and optim.SGD.

It shares with the package only the data, the places that randomness is derived from, and nothing of its rules.
"""

import copy
import math
from collections import Counter
from typing import Any

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import nn

from lidfl.learning.client import LocalTraining, draw_batches
from lidfl.seeds import rng_for
from lidfl.settings.experiment import Experiment
from lidfl.simulation.simulator import Simulator

Vector = NDArray[np.float64]


class Twin:
    """Plays an experiment with explicit loops; `models` is the list, oldest first, with ages beside it."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        simulator = Simulator.of(experiment)
        self.data = simulator.data
        self.module: nn.Module = copy.deepcopy(simulator.network.module)
        self.byzantine = sorted(simulator.cast.byzantine)
        self.honest = [c for c in range(experiment.num_clients) if c not in self.byzantine]
        start = np.concatenate([p.detach().numpy().ravel() for p in self.module.parameters()]).astype(float)
        self.models = [start.copy() for _ in range(experiment.list_size)]
        self.ages = [0] * experiment.list_size

    def play(self) -> Vector:
        for round_index in range(self.experiment.rounds):
            if self.experiment.method == "lidfl":
                self.list_round(round_index)
            elif self.experiment.method == "lidfl-ranked":
                self.ranked_round(round_index)
            else:
                self.single_round(round_index)
        return np.stack(self.models)

    def list_round(self, t: int) -> None:
        rng = rng_for(self.experiment.seed, "server", t)
        parent = int(rng.integers(len(self.models)))
        everyone = list(range(self.experiment.num_clients))
        if self.experiment.proposal == "client":
            update = self.sent(t, parent, [int(rng.choice(everyone))])[0]
        else:
            update = self.aggregate(self.experiment.proposal, self.sent(t, parent, everyone), rng)
        self.models.append(self.models[parent] + update)
        self.ages.append(0)
        votes = self.vote(t)
        tally = [votes.count(j) for j in range(len(self.models))]
        loser = min(range(len(self.models)), key=lambda j: (tally[j], -self.ages[j], j))
        del self.models[loser], self.ages[loser]
        self.ages = [age + 1 for age in self.ages]

    def ranked_round(self, t: int) -> None:
        """Favourite parents; jurors, also twice as far, RKNN groups by parent, the list's mean; ranked ballots."""
        rng = rng_for(self.experiment.seed, "server", t)
        everyone, k = list(range(self.experiment.num_clients)), len(self.honest)
        liked = [int(np.argmin([self.loss(c, w) for w in self.models])) for c in everyone]
        common = Counter(liked[c] for c in self.honest).most_common(1)[0][0]
        parents = [common if c in self.byzantine else liked[c] for c in everyone]
        updates: dict[int, Vector] = {}
        for parent in sorted(set(parents)):
            workers = [c for c in everyone if parents[c] == parent]
            updates |= dict(zip(workers, self.sent(t, parent, workers), strict=True))
        trained = [self.models[parents[c]] + updates[c] for c in everyone]
        new: list[Vector] = []
        twice: list[Vector] = []
        for juror in sorted(rng.choice(len(everyone), self.experiment.candidates, replace=False).tolist()):
            sign = -1 if juror in self.byzantine else 1
            order = sorted(everyone, key=lambda c: sign * self.loss(juror, trained[c]))
            new.append(np.mean([trained[c] for c in order[:k]], axis=0))
            twice.append(np.mean([trained[c] + updates[c] for c in order[:k]], axis=0))
        new += twice
        for parent in sorted(set(parents)):
            workers = [c for c in everyone if parents[c] == parent]
            groups = self.groups("rknn", [updates[c] for c in workers], rng)
            new += [self.models[parent] + np.mean([updates[workers[i]] for i in g], axis=0) for g in groups]
        average = np.mean(self.models, axis=0)
        new += [] if any(np.allclose(average, w, atol=1e-6) for w in self.models) else [average]
        distinct = [w for i, w in enumerate(new) if not any(np.allclose(w, v, atol=1e-6) for v in new[:i])]
        self.models += distinct
        self.ages += [0] * len(distinct)
        self.eliminate([sorted(range(len(self.models)), key=lambda j: self.liking(c, j)) for c in everyone])

    def liking(self, client: int, model: int) -> float:
        """Small for what a client ranks first: Byzantine voters rank by falling loss."""
        return self.loss(client, self.models[model]) * (-1 if client in self.byzantine else 1)

    def eliminate(self, rankings: list[list[int]]) -> None:
        standing = list(range(len(self.models)))
        while len(standing) > self.experiment.list_size:
            first = Counter(next(j for j in ranking if j in standing) for ranking in rankings)
            standing.remove(min(standing, key=lambda j: (first[j], -self.ages[j], j)))
        self.models = [self.models[j] for j in standing]
        self.ages = [self.ages[j] + 1 for j in standing]

    def single_round(self, t: int) -> None:
        rng = rng_for(self.experiment.seed, "server", t)
        sent = self.sent(t, 0, list(range(self.experiment.num_clients)))
        self.models = [self.models[0] + self.aggregate(self.experiment.method, sent, rng)]

    def sent(self, t: int, parent: int, workers: list[int]) -> list[Vector]:
        """What each worker sends; each attack as the paper words it."""
        attack, w = self.experiment.attack, self.models[parent]
        bad = [c for c in workers if c in self.byzantine]
        rng = rng_for(self.experiment.seed, "attack", t, parent)
        noise = rng.standard_normal((len(bad), len(w)), dtype=np.float32) if attack == "gauss" else None
        m, k = self.experiment.num_clients, len(self.honest)
        if bad and attack in ("lie", "empire", "omniscient", "ratchet"):
            u = np.stack([self.train(t, c, w) for c in self.honest])
        result = []
        for client in workers:
            if client not in self.byzantine:
                result.append(self.train(t, client, w))
                continue
            match attack:
                case "none":
                    forged = self.train(t, client, w)
                case "label_flip":
                    forged = self.train(t, client, w, flip=True)
                case "sign_flip":
                    forged = -self.train(t, client, w)
                case "gauss":
                    assert noise is not None
                    forged = noise[bad.index(client)] * self.train(t, client, w).std()
                case "lie":
                    forged = u.mean(0) - 20 * u.std(0)
                case "empire":
                    forged = -1.1 * k / (m - k) * u.mean(0)
                case "omniscient":
                    forged = (-u.mean(0) * m - u.sum(0)) / (m - k)
                case "ratchet":
                    liked = [int(np.argmin([self.loss(c, model) for model in self.models])) for c in self.honest]
                    forged = self.models[max(range(len(self.models)), key=liked.count)] - w - 0.1 * u.mean(0)
            result.append(forged)
        return result

    def train(self, t: int, client: int, start: Vector, *, flip: bool = False) -> Vector:
        e = self.experiment
        images, labels = self.data.train.of(client)
        labels = self.data.num_classes - 1 - labels if flip else labels
        module = self.load(start)
        sgd = torch.optim.SGD(module.parameters(), lr=e.learning_rate, momentum=e.momentum)
        training = LocalTraining(e.local_steps, e.batch_size, e.learning_rate, e.momentum)
        for rows in draw_batches(len(images), training, rng_for(e.seed, "batch", t, client)):
            sgd.zero_grad()
            nn.functional.cross_entropy(module(images[rows]), labels[rows]).backward()  # type: ignore[no-untyped-call]
            sgd.step()
        return np.concatenate([p.detach().numpy().ravel() for p in module.parameters()]).astype(float) - start

    def load(self, vector: Vector) -> nn.Module:
        """The one module, with other numbers: what it held before is over."""
        values = torch.from_numpy(vector).float()
        nn.utils.vector_to_parameters(values, self.module.parameters())
        return self.module

    def loss(self, client: int, vector: Vector) -> float:
        images, labels = self.data.validation.of(client)
        with torch.no_grad():
            each = nn.functional.cross_entropy(self.load(vector)(images), labels, reduction="none")
            if self.experiment.judge == "bounded":
                each = each.clamp_max(math.log(self.data.num_classes))
            value = each.mean().item()
        return value if np.isfinite(value) else np.inf

    def vote(self, t: int) -> list[int]:
        losses = np.array([[self.loss(c, w) for w in self.models] for c in range(self.experiment.num_clients)])
        honest = [int(losses[c].argmin()) for c in self.honest]
        rng = rng_for(self.experiment.seed, "vote", t)
        match self.experiment.vote_attack:
            case "worst":
                return honest + [int(losses[c].argmax()) for c in self.byzantine]
            case "random":
                steps = rng.integers(1, len(self.models), size=len(self.byzantine))
                bests = [losses[c].argmin() for c in self.byzantine]
                return honest + [int((b + s) % len(self.models)) for b, s in zip(bests, steps, strict=True)]
        raise NotImplementedError(self.experiment.vote_attack)

    def aggregate(self, rule: str, sent: list[Vector], rng: Generator) -> Vector:
        match rule:
            case "fedavg":
                return np.mean(sent, axis=0)  # type: ignore[no-any-return]
            case "cwm":
                return np.median(sent, axis=0)
            case "norm":
                scaled = [u * min(1.0, 0.215771 / float(np.linalg.norm(u))) for u in sent]
                return np.mean(scaled, axis=0)  # type: ignore[no-any-return]
            case "gm":
                centre = np.mean(sent, axis=0)
                weights = [1 / max(1e-5, float(np.linalg.norm(u - centre))) for u in sent]
                return np.average(sent, axis=0, weights=weights)
        groups = self.groups(rule, sent, rng)
        group = groups[int(rng.integers(len(groups)))]
        return np.mean([sent[i] for i in group], axis=0)  # type: ignore[no-any-return]

    def groups(self, rule: str, sent: list[Vector], rng: Generator) -> list[list[int]]:
        k, left, groups = len(self.honest), list(range(len(sent))), []
        while left:
            near: dict[int, list[int]] = {}
            radius: dict[int, float] = {}
            for i in left:
                by_distance = sorted((float(np.linalg.norm(sent[j] - sent[i])), j) for j in left)[:k]
                near[i], radius[i] = [j for _, j in by_distance], by_distance[-1][0]
            centre = rng.choice(left) if rule == "rknn" else min(left, key=lambda i: (radius[i], i))
            groups.append(near[centre])
            left = [i for i in left if i not in near[centre]]
        return groups


def tiny(**settings: Any) -> Experiment:
    """A problem small enough for the twin: 7 clients, 4 of them Byzantine, on digits."""
    small = dict(num_clients=7, byzantine_fraction=0.6, rounds=6, local_steps=3, batch_size=8, model="mlp:hidden=5")
    return Experiment.of(small | settings)
