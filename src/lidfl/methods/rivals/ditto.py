"""Ditto (Li et al. 2021): a global model by any rule, and for each client one of its own near it."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from math import inf

import numpy as np

from lidfl.methods.method import method
from lidfl.methods.rivals.steps import aggregated, idle, train
from lidfl.protocol import (
    Choose,
    ModelList,
    Proposed,
    Replies,
    Request,
    Round,
    Rules,
    Train,
    succeed,
    valid_ballots,
    valid_updates,
)
from lidfl.registry import within
from lidfl.types import Client, Models

PULLS = (0.05, 0.1, 0.5, 1.0, 2.0)
"""The strengths λ that a client may choose from."""


def own_and_global(clients: int, _honest: int) -> int:
    """A model for each client, and the global one at the end."""
    return clients + 1


@method("ditto", length=own_and_global, personal=True, needs="training that is drawn to a second model")
@within(pull=(-1, inf))
def ditto(
    models: ModelList,
    round_index: int,
    clients: Sequence[Client],
    rng: np.random.Generator,
    rules: Rules,
    *,
    rule: str = "fedavg",
    pull: float = -1.0,
) -> Round:
    """Ditto: each client trains a model of its own, drawn to a global one by any rule (Li et al. 2021).

    w ← w + rule{uᵢ}, and vᵢ takes as many steps along −(∇Fᵢ(vᵢ) + λ(vᵢ − w)); client i deploys vᵢ. Each round it
    tries all λ of {0.05, 0.1, 0.5, 1, 2} and keeps what its validation loss likes best, which costs six trainings;
    with a λ given (`pull`) it is two.
    """
    common = len(clients)
    trained, unusable = yield from train(round_index, models, dict.fromkeys(clients, (common,)))
    if not trained:
        return idle(round_index, models, unusable, len(clients))
    strengths = PULLS if pull < 0 else (pull,)
    tried = yield from personal(models, round_index, clients, strengths)
    own = yield from liked(round_index, tried, clients)
    new = {client: Proposed((client,), own[client], (client,)) for client in clients}
    new[common] = aggregated(rule, models, common, trained, rng, rules.num_honest)
    return succeed(round_index, models, new, unusable)


def personal(
    models: ModelList, round_index: int, clients: Sequence[Client], strengths: Sequence[float]
) -> Generator[Request, Replies, Models]:
    """Each client's own model after training that is drawn to the global one, (strengths, clients, dim)."""
    offers = {client: (client,) for client in clients}
    rows = models.parameters[: len(clients)].repeat(len(strengths), 1, 1)
    for place, strength in enumerate(strengths):
        training = Train(round_index, models, offers, alone=True, anchor=len(clients), pull=strength)
        trained, _ = valid_updates((yield training), offers, models)
        for client, sent in trained.items():
            rows[place, client] += sent.update
    return rows


def liked(round_index: int, tried: Models, clients: Sequence[Client]) -> Generator[Request, Replies, Models]:
    """Of what each client has tried, (strengths, clients, dim), what it likes best."""
    rows = tried[0].clone()
    for client in clients if len(tried) > 1 else ():
        question = Choose(round_index, tried[:, client], (client,), 1, tried[:0, client])
        ballots, _ = valid_ballots((yield question), question)
        for (choice,) in filter(None, ballots.values()):
            rows[client] = tried[choice, client]
    return rows
