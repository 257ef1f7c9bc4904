"""FLTrust (Cao et al. 2021): the server trains too, and trusts who goes its way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lidfl.lazily import torch
from lidfl.methods.aggregators.blocks import weighted_mean
from lidfl.methods.method import SERVER_DATA, method
from lidfl.methods.rivals.steps import idle, rows_of, train_all
from lidfl.protocol import ModelList, Proposed, Round, Rules, ServerTrains, succeed
from lidfl.types import Client, Parameters, Updates


@method("fltrust", needs=SERVER_DATA)
def fltrust(
    models: ModelList, round_index: int, clients: Sequence[Client], _rng: np.random.Generator, _rules: Rules
) -> Round:
    """FLTrust: updates as long as the server's own, weighted by their cosine with it (Cao et al. 2021).

    With g₀ the server's update, TSᵢ = max(0, cos(uᵢ, g₀)) and the step is Σ TSᵢ (‖g₀‖/‖uᵢ‖) uᵢ / Σ TSᵢ. If nobody
    goes its way, there is no step.
    """
    trained, unusable = yield from train_all(round_index, models, clients)
    if not trained:
        return idle(round_index, models, unusable, len(clients))
    ((_, own),) = yield ServerTrains(round_index, models.parameters[0])
    assert isinstance(own, torch.Tensor)
    step, trusted = trust(rows_of(trained, trained), own)
    if not trusted.any():
        return succeed(round_index, models, {}, unusable)
    members = tuple(client for client, counts in zip(trained, trusted, strict=True) if counts)
    return succeed(round_index, models, {0: Proposed((0,), models.parameters[0] + step, members)}, unusable)


def trust(updates: Updates, own: Parameters) -> tuple[Parameters, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """The step, and the trust in each update. Lengths are taken in double precision: squares must not overflow."""
    wide, mine = updates.double(), own.double()
    lengths, length = torch.linalg.vector_norm(wide, dim=1), torch.linalg.vector_norm(mine)
    scale = torch.where(lengths > 0, 1 / lengths.clamp_min(1e-300), 0)
    cosines = (wide @ mine) * scale / length.clamp_min(1e-300)
    trusted = cosines.clamp(0, 1).cpu().numpy()
    weights = trusted * (scale * length).cpu().numpy() / max(trusted.sum(), 1e-300)
    return weighted_mean(updates, weights), trusted
