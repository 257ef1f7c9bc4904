"""Steps that several rivals share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from lidfl.lazily import torch
from lidfl.methods.pipelines import resolve_pipeline
from lidfl.protocol import (
    ModelList,
    Outcome,
    Proposed,
    Replies,
    Request,
    Rules,
    ServerLosses,
    Train,
    Trained,
    succeed,
    unplayed,
    valid_updates,
)
from lidfl.types import Client, Models, Position, Updates

Sent = Mapping[Client, Trained]
"""Usable updates by client."""


def train(
    round_index: int, models: ModelList, offers: Mapping[Client, tuple[Position, ...]]
) -> Generator[Request, Replies, tuple[Sent, Counter[str]]]:
    """Have clients train what they are offered; what came back, and what of it is of no use."""
    return valid_updates((yield Train(round_index, models, offers)), offers, models)


def train_all(
    round_index: int, models: ModelList, clients: Sequence[Client]
) -> Generator[Request, Replies, tuple[Sent, Counter[str]]]:
    """Have all clients train the one model."""
    return (yield from train(round_index, models, dict.fromkeys(clients, (0,))))


def rows_of(sent: Sent, clients: Iterable[Client]) -> Updates:
    """The updates of some clients, one a row."""
    return torch.stack([sent[client].update for client in clients])


def share_honest(rules: Rules, some: int, clients: int) -> int:
    """How many of some clients are taken to be honest: as large a share as of all."""
    return max(1, some * rules.num_honest // clients)


def aggregated(
    rule: str, models: ModelList, place: Position, sent: Sent, rng: np.random.Generator, num_honest: int
) -> Proposed:
    """A model of the list after the step that a rule makes of updates to it."""
    found = resolve_pipeline(rule).candidates(rows_of(sent, sent), num_honest=num_honest, rng=rng)
    update, members = found[int(rng.integers(len(found)))] if len(found) > 1 else found[0]
    senders = list(sent)
    return Proposed((place,), models.parameters[place] + update, tuple(senders[row] for row in members))


def server_losses(round_index: int, models: Models) -> Generator[Request, Replies, NDArray[np.float64]]:
    """The loss of each model on the server's own images; what is not finite never wins."""
    ((_, losses),) = yield ServerLosses(round_index, models)
    assert isinstance(losses, np.ndarray)
    return np.where(np.isfinite(losses), losses, np.inf)


def idle(round_index: int, models: ModelList, unusable: Counter[str], asked: int) -> Outcome:
    """A round in which nothing usable was sent: the list stays; if nobody answered, it is to be played again."""
    if unusable["missing"] == asked:
        return unplayed(round_index, models, unusable)
    return succeed(round_index, models, {}, unusable)
