"""Basil (Elkordy, Prakash and Avestimehr 2022): a ring without a server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf

import numpy as np

from lidfl.methods.method import method
from lidfl.methods.rivals.steps import train
from lidfl.protocol import ModelList, Proposed, Round, Rules, succeed
from lidfl.registry import within
from lidfl.types import Client, Position


def one_each(clients: int, _honest: int) -> int:
    """A model for each client."""
    return clients


@method("basil", length=one_each, personal=True, needs="clients that hear each other")
@within(stored=(0, inf))
def basil(
    models: ModelList,
    round_index: int,
    clients: Sequence[Client],
    _rng: np.random.Generator,
    rules: Rules,
    *,
    stored: int = 0,
) -> Round:
    """Basil: on a ring, each in turn trains the best of its predecessors' latest models (Elkordy et al. 2022).

    Node i holds the models of its S predecessors, takes w* = argmin Fᵢ among them, and hands w* + uᵢ to the next S.
    With S = f + 1, unless `stored` says otherwise, one of them is honest. A pass over the ring is a round, and the
    clients stand on it by number: who is bad is drawn at random, so the ring is in random order.
    """
    held = max(1, min(stored or len(clients) - rules.num_honest + 1, len(clients) - 1))
    now, new = models, dict[Position, Proposed]()
    rejected: Counter[str] = Counter()
    for client in clients:
        before = [(client - back) % len(models) for back in range(1, held + 1)]
        within = now.at(before)
        sent, unusable = yield from train(round_index, within, {client: tuple(range(held))})
        rejected += unusable
        if client in sent:
            origin = sent[client].parent
            model = within.parameters[origin] + sent[client].update
            new[client] = Proposed((before[origin],), model, (client,))
            now = now.renewed({client: new[client]})
    return succeed(round_index, models, new, rejected)
