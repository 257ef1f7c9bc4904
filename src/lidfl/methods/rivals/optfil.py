"""OptFil (the authors of LiD-FL, 2023): two candidates and a vote."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lidfl.lazily import torch
from lidfl.methods.aggregators import squared_distances
from lidfl.methods.method import method
from lidfl.methods.rivals.steps import idle, rows_of, share_honest, train_all
from lidfl.protocol import (
    Choose,
    ModelList,
    Proposed,
    Round,
    Rules,
    first_choices,
    succeed,
    valid_ballots,
)
from lidfl.types import Client, Updates

Rows = NDArray[np.int64]


@method("optfil")
def optfil(
    models: ModelList, round_index: int, clients: Sequence[Client], _rng: np.random.Generator, rules: Rules
) -> Round:
    """OptFil: the mean inside the tightest ball or the one outside, by a vote (arXiv 2312.12835).

    Of n updates s = ⌊(1 − β)n⌋ are honest. Inside is the mean of the s updates around the one whose s-th neighbour
    is nearest, outside the mean of all that a ball of n − s such updates leaves out; all clients vote which of the
    two models has the lower loss, and the majority decides. It is LiD-FL's forerunner, with a list of one.
    """
    trained, unusable = yield from train_all(round_index, models, clients)
    if not trained:
        return idle(round_index, models, unusable, len(clients))
    senders, updates = list(trained), rows_of(trained, trained)
    sets = inside_and_outside(updates, share_honest(rules, len(updates), len(clients)))
    pair = torch.stack([models.parameters[0] + updates[rows.tolist()].mean(0) for rows in sets])
    ballot = Choose(round_index, pair.nan_to_num(), tuple(clients), 1, models.parameters)
    ballots, spoilt = valid_ballots((yield ballot), ballot)
    inside, outside = first_choices(list(ballots.values()), 2)
    chosen = int(outside > inside)
    members = tuple(senders[row] for row in sets[chosen])
    return succeed(round_index, models, {0: Proposed((0,), pair[chosen], members)}, unusable + spoilt)


def inside_and_outside(updates: Updates, honest: int) -> tuple[Rows, Rows]:
    """The rows of the tightest ball that holds as many as are honest; and all but those of one for the others."""
    inside, bad = tightest(updates, honest), tightest(updates, len(updates) - honest)
    return inside, np.setdiff1d(np.arange(len(updates)), bad)


def tightest(updates: Updates, size: int) -> Rows:
    """So many rows around the one whose farthest neighbour among them is nearest."""
    if size == 0:
        return np.arange(0)
    distances = squared_distances(updates)
    near = np.argsort(distances, axis=1, kind="stable")[:, :size]
    centre = np.take_along_axis(distances, near, axis=1)[:, -1].argmin()
    return np.sort(near[centre])
