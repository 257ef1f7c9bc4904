"""BaFFLe (Andreina et al. 2021): sampled clients reject a new model that moves oddly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from lidfl.lazily import torch
from lidfl.methods.method import method
from lidfl.methods.rivals.steps import aggregated, idle, train_all
from lidfl.protocol import ModelList, Round, Rules, Validate, all_finite, sample, succeed, valid_verdicts
from lidfl.registry import within
from lidfl.types import Client

Points = NDArray[np.float64]
"""One point a row."""
VOTED_DOWN = Counter({"new model voted down": 1})
"""How a round is counted that changed nothing."""


@method("baffle", needs="validators that look at errors class by class")
@within(validators=(1, inf), quorum=(1, inf), lookback=(1, 1000))
def baffle(
    models: ModelList,
    round_index: int,
    clients: Sequence[Client],
    rng: np.random.Generator,
    rules: Rules,
    *,
    rule: str = "fedavg",
    validators: int = 10,
    quorum: int = 5,
    lookback: int = 20,
) -> Round:
    """BaFFLe: one model by any rule; if enough sampled clients find it odd, the old stays (Andreina et al. 2021).

    Validators see the new model and the last ℓ + 1 accepted ones (`lookback`), and judge by `looks_poisoned`; so
    many votes (`quorum`) reject. That is sound for fewer liars than the quorum, and enough honest validators.
    """
    trained, unusable = yield from train_all(round_index, models, clients)
    if not trained:
        return idle(round_index, models, unusable, len(clients))
    new = aggregated(rule, models, 0, trained, rng, rules.num_honest)
    past = models.parameters if models.memory is None else torch.cat([models.memory, models.parameters])
    asked = sample(clients, max(1, validators), rng)
    request = Validate(round_index, torch.cat([past, new.parameters[None]]), asked)
    verdicts, spoilt = valid_verdicts((yield request), request)
    if sum(verdicts.values()) >= quorum or not all_finite(new.parameters):
        return succeed(round_index, models, {}, unusable + spoilt + VOTED_DOWN)
    kept = replace(models, memory=past[-max(1, lookback) :])
    return succeed(round_index, kept, {0: new}, unusable + spoilt)


def looks_poisoned(errors: Points) -> bool:
    """Whether the last of several models moves oddly: its errors by class, (models, 2 · classes), oldest first.

    Its step v = errors(G) − errors(G_last) has an outlier factor ρ among those of the ℓ models before it, with
    ⌈ℓ/2⌉ neighbours; τ is the mean of the same factor over the last ⌈ℓ/4⌉ of them, each among the others; ρ > τ is
    odd. With fewer than four steps before it there is nothing to compare with.
    """
    steps = np.diff(errors, axis=0)
    *before, last = steps
    if len(before) < 4:
        return False
    known = np.stack(before)
    near = -(-len(known) // 2)
    recent = range(len(known) - -(-len(known) // 4), len(known))
    usual = [outlier_factor(known[row], np.delete(known, row, axis=0), near) for row in recent]
    return bool(outlier_factor(last, known, near) > np.mean(usual))


def errors_by_class(labels: NDArray[np.int64], said: NDArray[np.int64], classes: int) -> Points:
    """Of all images, the share of each class that is taken for another; and the share wrongly taken for it."""
    wrong = labels != said
    missed = np.bincount(labels[wrong], minlength=classes)
    claimed = np.bincount(said[wrong], minlength=classes)
    return np.concatenate([missed, claimed]) / max(1, len(labels))


def outlier_factor(point: Points, others: Points, near: int) -> float:
    """The local outlier factor of a point among others, by so many neighbours (Breunig et al. 2000).

    lrd(p) = 1/mean over neighbours o of max(radius(o), ‖p − o‖), and the factor is mean lrd(o)/lrd(p).
    """
    near = min(near, len(others) - 1)
    apart = np.linalg.norm(others[:, None] - others, axis=2)
    np.fill_diagonal(apart, np.inf)
    order = np.argsort(apart, axis=1, kind="stable")[:, :near]
    radius = np.take_along_axis(apart, order, axis=1)[:, -1]
    reach = np.maximum(radius[order], np.take_along_axis(apart, order, axis=1))
    density = 1 / (reach.mean(1) + 1e-10)
    away = np.linalg.norm(others - point, axis=1)
    closest = np.argsort(away, kind="stable")[:near]
    own = 1 / (np.maximum(radius[closest], away[closest]).mean() + 1e-10)
    return float(density[closest].mean() / own)
