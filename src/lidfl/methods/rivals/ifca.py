"""IFCA (Ghosh et al. 2020): several models, everyone trains the one it likes best, and nobody votes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lidfl.errors import LidflError
from lidfl.methods.method import method, shortest_list
from lidfl.methods.rivals.steps import aggregated, idle, share_honest, train
from lidfl.protocol import ModelList, Round, Rules, succeed
from lidfl.types import Client


def as_many_clusters(clients: int, honest: int, clusters: int) -> int:
    """As many models as were asked for, or as LiD-FL's shortest list has, and two at least."""
    if clusters < 0:
        raise LidflError(f"clusters must be 0 (as many as LiD-FL has models) or more, not {clusters}")
    return clusters or max(2, shortest_list(clients, honest))


@method("ifca", length=as_many_clusters)
def ifca(
    models: ModelList,
    round_index: int,
    clients: Sequence[Client],
    rng: np.random.Generator,
    rules: Rules,
    *,
    clusters: int = 0,  # noqa: ARG001 - says how long the list is
    rule: str = "fedavg",
) -> Round:
    """IFCA: each client trains the model it likes best; a model steps by the rule of its own (Ghosh et al. 2020).

    ĵᵢ = argmin Fᵢ(θⱼ), and θⱼ ← θⱼ + rule{uᵢ : ĵᵢ = j}; with `rule=cwm` or `trimmed_mean` it is the robust variant
    (BR-IFCA). In the first round all models are equal and nobody can have a favourite: clients are dealt to them.
    """
    everything = tuple(range(len(models)))
    offers = dict.fromkeys(clients, everything)
    if round_index == 0:
        dealt = rng.permutation(len(clients)) % len(models)
        offers = {client: (int(place),) for client, place in zip(clients, dealt, strict=True)}
    trained, unusable = yield from train(round_index, models, offers)
    if not trained:
        return idle(round_index, models, unusable, len(offers))
    new = {}
    for place in everything:
        members = {client: sent for client, sent in trained.items() if sent.parent == place}
        if members:
            honest = share_honest(rules, len(members), len(clients))
            new[place] = aggregated(rule, models, place, members, rng, honest)
    return succeed(round_index, models, new, unusable)
