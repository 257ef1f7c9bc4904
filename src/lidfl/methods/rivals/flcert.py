"""FLCert (Cao et al. 2021, 2022): many models, each of a small group of clients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lidfl.errors import LidflError
from lidfl.methods.method import method
from lidfl.methods.rivals.steps import aggregated, idle, share_honest, train
from lidfl.protocol import ModelList, Round, Rules, succeed
from lidfl.types import Client

Counts = NDArray[np.int64]
"""How many models give each label, (images, classes)."""


def as_many_groups(clients: int, _honest: int, groups: int) -> int:
    """As many models as groups were asked for, or as groups of three need."""
    if groups < 0:
        raise LidflError(f"groups must be 0 (groups of three) or more, not {groups}")
    return min(groups or -(-clients // 3), clients)


@method("flcert", length=as_many_groups)
def flcert(
    models: ModelList,
    round_index: int,
    clients: Sequence[Client],
    rng: np.random.Generator,
    rules: Rules,
    *,
    groups: int = 0,  # noqa: ARG001 - says how long the list is
    rule: str = "fedavg",
) -> Round:
    """FLCert: disjoint groups of clients each train a model of their own; a client picks one (Cao et al. 2022).

    Client c is in group c mod N, θ_g ← θ_g + rule{uᵢ : i ∈ g}. The papers predict by the majority of the N models,
    which is void at a malicious majority; to pick the one with the lowest own loss needs a single clean group.
    """
    offers = {client: (client % len(models),) for client in clients}
    trained, unusable = yield from train(round_index, models, offers)
    if not trained:
        return idle(round_index, models, unusable, len(offers))
    new = {}
    for group in range(len(models)):
        members = {client: sent for client, sent in trained.items() if sent.parent == group}
        if members:
            honest = share_honest(rules, len(members), len(clients))
            new[group] = aggregated(rule, models, group, members, rng, honest)
    return succeed(round_index, models, new, unusable)


def certified(counts: Counts) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What the majority of models says of each image, and how many malicious clients cannot change it.

    With n_y votes for the label y and n_z for the runner-up z, ties going to the smaller label, that holds up to
    ⌊(n_y − n_z − [z < y])/2⌋ of them, since each is in one group (Cao et al. 2021, theorem for disjoint groups).
    """
    labels = counts.argmax(1)
    rows = np.arange(len(counts))
    others = counts.copy()
    others[rows, labels] = -1
    # Of others, each would win with its votes, and one more if its label is larger.
    lead = counts[rows, labels][:, None] - others - (np.arange(counts.shape[1]) < labels[:, None])
    lead[rows, labels] = np.iinfo(np.int64).max
    return labels, lead.min(1) // 2
