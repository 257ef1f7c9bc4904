"""Zeno (Xie et al. 2019): the updates by which the server's loss falls most."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from lidfl.lazily import torch
from lidfl.methods.method import SERVER_DATA, method
from lidfl.methods.rivals.steps import idle, rows_of, server_losses, share_honest, train_all
from lidfl.protocol import ModelList, Proposed, Round, Rules, succeed
from lidfl.registry import within
from lidfl.types import Client


@method("zeno", needs=SERVER_DATA)
@within(rho=(0, inf))
def zeno(
    models: ModelList,
    round_index: int,
    clients: Sequence[Client],
    _rng: np.random.Generator,
    rules: Rules,
    *,
    rho: float = 0.0005,
) -> Round:
    """Zeno: the mean of the n − f updates that lower the server's loss most for their length (Xie et al. 2019).

    The score is f_S(w) − f_S(w + uᵢ) − ρ‖uᵢ‖². The paper draws a fresh batch a round; here it is all of the set.
    """
    trained, unusable = yield from train_all(round_index, models, clients)
    if not trained:
        return idle(round_index, models, unusable, len(clients))
    updates = rows_of(trained, trained)
    losses = yield from server_losses(round_index, models.parameters[0] + updates)
    # f_S(w) is the same for all.
    penalties = losses + rho * torch.linalg.vector_norm(updates.double(), dim=1).square().cpu().numpy()
    best = np.argsort(penalties, kind="stable")[: share_honest(rules, len(updates), len(clients))]
    kept, senders = np.sort(best).tolist(), list(trained)
    model = models.parameters[0] + updates[kept].mean(0)
    members = tuple(senders[row] for row in kept)
    return succeed(round_index, models, {0: Proposed((0,), model, members)}, unusable)
