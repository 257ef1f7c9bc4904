"""From what clients sent to the candidates of a vote: all proposals, each candidate once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from lidfl.lazily import torch
from lidfl.protocol.messages import ModelList, Proposed, Replies, Request
from lidfl.protocol.replies import all_finite, valid_ballots
from lidfl.protocol.rules import Asking, Gathered, Propose, Rules
from lidfl.types import Client, Parameters

ROUNDING = 1e-5
"""By how much two models may differ and count as one: relative to each parameter, and to the shorter step."""

Made: TypeAlias = Generator[Request, Replies, tuple[list[Proposed], "Counter[str]"]]
"""Asks clients where it must; returns new models, and the replies that were of no use, counted by what is wrong."""


def propose(gathered: Gathered, proposals: Iterable[Propose]) -> Made:
    """All candidates of all proposals, each once: equals would only split the votes of those who like them.

    A mean of finite models may overflow; such a candidate is nobody's fault, and no candidate.
    """
    found: list[Proposed] = []
    steps: list[float] = []
    rejected: Counter[str] = Counter()
    for make in proposals:
        made = make(gathered)
        if not isinstance(made, list):
            made, spoilt = yield from _hear(made)
            rejected += spoilt
        for new in _in_form(made, gathered.rules):
            if all_finite(new.parameters):
                step = step_of(new, gathered.models)
                others = zip(found, steps, strict=True)
                if not any(same(new.parameters, other.parameters, min(step, length)) for other, length in others):
                    found.append(new)
                    steps.append(step)
    return found, rejected


def _in_form(made: list[Proposed], rules: Rules) -> list[Proposed]:
    """New models as the same functions in the form that all models have here."""
    if rules.canonical is None or not made:
        return made
    formed = rules.canonical(torch.stack([new.parameters for new in made]))
    return [replace(new, parameters=model) for new, model in zip(made, formed, strict=True)]


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


def step_of(new: Proposed, models: ModelList) -> float:
    """How far a candidate is from the nearest model that it was made from, in its largest coordinate."""
    return float((models.parameters[list(new.parents)] - new.parameters).abs().amax(1).min())


def same(one: Parameters, other: Parameters, step: float) -> bool:
    """Whether two models differ by rounding alone: the mean of a group depends on the order of its members.

    Rounding is relative to the shorter of their steps. By the largest parameter, one who blows up a bias that all
    share would make all candidates equal.
    """
    return torch.allclose(one, other, rtol=ROUNDING, atol=ROUNDING * step)
