"""Semi-verified mean estimation, after Zhao and Wan (2023): our reconstruction of an idea, not their algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf

import numpy as np

from lidfl.lazily import torch
from lidfl.methods.method import SERVER_DATA, method
from lidfl.methods.rivals.steps import idle, rows_of, train_all
from lidfl.protocol import ModelList, Proposed, Round, Rules, ServerTrains, succeed
from lidfl.registry import within
from lidfl.types import Client, Parameters, Updates


@method("semi_verified", needs=SERVER_DATA)
@within(trainings=(1, 1000), slack=(0, inf))
def semi_verified(
    models: ModelList,
    round_index: int,
    clients: Sequence[Client],
    _rng: np.random.Generator,
    rules: Rules,
    *,
    trainings: int = 5,
    slack: float = 4.0,
) -> Round:
    """Semi-verified: where updates differ most the server's own mean, elsewhere that of clients (ours, 2023).

    The idea is from the abstract of Zhao and Wan, "High dimensional distributed gradient descent with arbitrary
    number of Byzantine attackers"; how it is done, in `semi_verified_mean`, is our reconstruction. The server
    trains a few times on its own images, with other batches each time.
    """
    trained, unusable = yield from train_all(round_index, models, clients)
    if not trained:
        return idle(round_index, models, unusable, len(clients))
    own = []
    for part in range(max(2, trainings)):
        ((_, update),) = yield ServerTrains(round_index, models.parameters[0], part)
        assert isinstance(update, torch.Tensor)
        own.append(update)
    step = semi_verified_mean(rows_of(trained, trained), torch.stack(own), rules.num_honest / len(clients), slack)
    new = {0: Proposed((0,), models.parameters[0] + step, tuple(trained))}
    return succeed(round_index, models, new, unusable)


def semi_verified_mean(updates: Updates, own: Updates, honest: float, slack: float) -> Parameters:
    """g = P ḡ + (I − P) μ, with P onto the directions in which updates vary more than the server's own do.

    λ* = slack · λ₁ of the server's updates. Of the weighted updates, with weights c from 1: P holds the at most
    p = ⌈1/γ⌉ eigenvectors of their covariance with λ > λ*. While there are more than p such, every weight is cut by
    its update's share of what lies in P, cᵢ ← cᵢ(1 − τᵢ/max τ) with τᵢ = ‖P(uᵢ − μ)‖²; it ends at Σc < γn/2.
    """
    rows, aux = updates.double(), own.double()
    mean = aux.mean(0)
    allowed = slack * float(torch.linalg.matrix_norm(aux - mean, 2)) ** 2 / len(aux)
    most, weights = ceil(1 / honest), torch.ones(len(rows), dtype=torch.float64, device=rows.device)
    while True:
        shares = weights / weights.sum()
        centre = shares @ rows
        _, values, directions = torch.linalg.svd(shares.sqrt()[:, None] * (rows - centre), full_matrices=False)
        wide = values.square() > allowed
        chosen = directions[: min(most, int(wide.sum()))]
        if int(wide.sum()) <= most:
            break
        beyond = ((rows - centre) @ chosen.T).square().sum(1)
        cut = weights * (1 - beyond / beyond.max())
        if float(cut.sum()) < honest * len(rows) / 2:
            break
        weights = cut
    found: torch.Tensor = centre + chosen.T @ (chosen @ (mean - centre))
    largest = torch.finfo(updates.dtype).max
    return found.clamp(-largest, largest).to(updates.dtype)
