"""From what clients sent to the candidates of a vote: all proposals, each candidate once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from typing import TypeAlias

import numpy as np

from lidfl.lazily import torch
from lidfl.protocol.messages import Proposed, Replies, Request
from lidfl.protocol.replies import valid_ballots
from lidfl.protocol.rules import Asking, Gathered, Propose
from lidfl.types import Client, Parameters

ROUNDING = 1e-5
"""By how much, relative to the largest parameter, two models may differ and count as one."""

Made: TypeAlias = Generator[Request, Replies, tuple[list[Proposed], "Counter[str]"]]
"""Asks clients where it must; returns new models, and the replies that were of no use, counted by what is wrong."""


def propose(gathered: Gathered, proposals: Iterable[Propose]) -> Made:
    """All candidates of all proposals, each once: equals would only split the votes of those who like them."""
    found: list[Proposed] = []
    rejected: Counter[str] = Counter()
    for make in proposals:
        made = make(gathered)
        if not isinstance(made, list):
            made, spoilt = yield from _hear(made)
            rejected += spoilt
        for new in made:
            if not any(same(new.parameters, other.parameters) for other in found):
                found.append(new)
    return found, rejected


def _hear(asking: Asking) -> Made:
    """Take a proposal's questions to the clients and bring it the usable ballots."""
    rejected: Counter[str] = Counter()
    try:
        request = next(asking)
        while True:
            ballots, spoilt = valid_ballots((yield request), request)
            rejected += spoilt
            request = asking.send(ballots)
    except StopIteration as done:
        return done.value, rejected


def sample(clients: Sequence[Client], count: int, rng: np.random.Generator) -> tuple[Client, ...]:
    """So many distinct clients in ascending order; all of them if there are no more."""
    if count >= len(clients):
        return tuple(clients)
    return tuple(clients[index] for index in sorted(rng.choice(len(clients), count, replace=False).tolist()))


def same(one: Parameters, other: Parameters) -> bool:
    """Whether two models are equal but for rounding: the mean of a group depends on the order of its members."""
    return torch.allclose(one, other, rtol=ROUNDING, atol=ROUNDING * float(one.abs().max()))
