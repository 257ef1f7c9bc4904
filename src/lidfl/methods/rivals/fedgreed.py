"""FedGreed (Kritharakis et al. 2025): take in models, best first, while the server's loss falls."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lidfl.methods.method import SERVER_DATA, method
from lidfl.methods.rivals.steps import idle, rows_of, server_losses, train_all
from lidfl.protocol import ModelList, Proposed, Round, Rules, succeed
from lidfl.types import Client


@method("fedgreed", needs=SERVER_DATA)
def fedgreed(
    models: ModelList, round_index: int, clients: Sequence[Client], _rng: np.random.Generator, _rules: Rules
) -> Round:
    """FedGreed: the mean of the models best on the server's images, while its loss falls (Kritharakis et al. 2025).

    In order of f_S(w + uᵢ): a ← w₍₁₎, then t = ((j − 1)/j) a + w₍ⱼ₎/j, and a ← t while f_S(t) < f_S(a); the first
    that does not help ends it. How the paper stops could not be read in full: that part is our reading.
    """
    trained, unusable = yield from train_all(round_index, models, clients)
    if not trained:
        return idle(round_index, models, unusable, len(clients))
    grown = models.parameters[0] + rows_of(trained, trained)
    losses = yield from server_losses(round_index, grown)
    best, *others = np.argsort(losses, kind="stable").tolist()
    mean, lowest, taken = grown[best], losses[best], [best]
    for count, row in enumerate(others, start=2):
        tried = mean + (grown[row] / count - mean / count)
        (loss,) = yield from server_losses(round_index, tried[None])
        if not loss < lowest:
            break
        mean, lowest, taken = tried, loss, [*taken, row]
    senders = list(trained)
    members = tuple(senders[row] for row in sorted(taken))
    return succeed(round_index, models, {0: Proposed((0,), mean, members)}, unusable)
