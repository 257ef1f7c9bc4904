"""What registered functions answer, looked at once where it enters: one of the user's own may give anything.

Without this a broken function would be told by whatever fails after it, or not at all: an update of the wrong shape
counts as a malformed reply, so that a broken attack would look like a strong defence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from inspect import isgenerator
from typing import Any

import numpy as np

from lidfl.errors import LidflError
from lidfl.lazily import torch
from lidfl.learning.client import Measure
from lidfl.methods.pipelines import Pipeline
from lidfl.protocol import Asking, Gathered, Propose, Proposed
from lidfl.registry import Bound
from lidfl.types import Ballot, Models, Parameters, Position, Updates


def described(value: object) -> str:
    """What something is: its kind, the type of its numbers, its shape.

    >>> described(np.zeros((2, 3))), described(None), described([1, 2])
    ('an array of float64, shape (2, 3)', 'None', 'a list of 2')
    """
    if isinstance(value, torch.Tensor):
        return f"a tensor of {str(value.dtype).removeprefix('torch.')}, shape {tuple(value.shape)}"
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype}, shape {value.shape}"
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return "None" if value is None else f"a {type(value).__name__}"


def refusal(kind: str, name: str, answer: object, wanted: str) -> LidflError:
    """The error that says which function gave what, and what it should have given."""
    return LidflError(f"{kind} '{name}' gave {described(answer)}; it must give {wanted}")


# Vectors


def as_updates(name: str, answer: object, attackers: int, start: Parameters) -> Updates:
    """What an attack sends, one row a client; one vector is sent by all of them."""
    found = _as_floats(answer)
    if found is None or tuple(found.shape) not in ((len(start),), (1, len(start)), (attackers, len(start))):
        wanted = f"floats of shape ({attackers}, {len(start)}), a row for each attacker, or ({len(start)},)"
        raise refusal("attack", name, answer, wanted)
    return found.to(start).expand(attackers, -1)


def as_vector(kind: str, name: str, answer: object, like: Parameters) -> Parameters:
    """One model or update that a function makes."""
    found = _as_floats(answer)
    if found is None or found.shape != like.shape:
        raise refusal(kind, name, answer, f"a tensor of floats of shape ({len(like)},)")
    return found.to(like)


def _as_floats(answer: object) -> torch.Tensor | None:
    """A tensor of floats, which an array may become; None if it is none."""
    if isinstance(answer, np.ndarray) and answer.dtype.kind == "f":
        with np.errstate(over="ignore"):  # what overflows is infinite, and treated as such
            return torch.from_numpy(np.array(answer, np.float32))
    if not isinstance(answer, torch.Tensor) or answer.layout != torch.strided:
        return None
    return answer.detach() if answer.is_floating_point() else None


def as_poisoned(name: str, answer: object, like: torch.Tensor, wanted: str) -> torch.Tensor:
    """Images or labels that an attack on data makes, one for each that it was given."""
    found = torch.from_numpy(answer.copy()) if isinstance(answer, np.ndarray) else answer
    if not isinstance(found, torch.Tensor) or found.shape != like.shape or found.is_complex():
        raise refusal("attack", name, answer, wanted)
    if found.is_floating_point() != like.is_floating_point():
        raise refusal("attack", name, answer, wanted)
    return found.to(like)


def as_labels(name: str, answer: object, like: torch.Tensor, num_classes: int) -> torch.Tensor:
    """Labels that an attack on data makes; each names a class that there is."""
    labels = as_poisoned(name, answer, like, f"whole numbers of shape {tuple(like.shape)}, a label for each image")
    if len(labels) and (int(labels.min()) < 0 or int(labels.max()) >= num_classes):
        raise LidflError(
            f"attack '{name}' gave labels from {int(labels.min())} to {int(labels.max())}; it must give "
            f"some of 0 … {num_classes - 1}"
        )
    return labels


# Judgements and ballots


def checked_measure(name: str, rule: Measure) -> Measure:
    """A judge whose answer is a real number for each image: means of anything else would be no judgement."""

    def measured(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        found = rule(outputs, labels)
        if not isinstance(found, torch.Tensor) or found.shape != labels.shape or found.is_complex():
            raise refusal("judge", name, found, f"a tensor of shape ({len(labels)},), a number for each image")
        return found

    return measured


def checked_ballots(name: str, answer: object, voters: int) -> list[Ballot]:
    """What Byzantine voters cast: a tuple of positions each."""
    if not isinstance(answer, list) or len(answer) != voters or not all(map(_is_ballot, answer)):
        raise refusal("vote attack", name, answer, f"a list of {voters} ballots, each a tuple of ints")
    return answer


def _is_ballot(answer: object) -> bool:
    return isinstance(answer, tuple) and all(type(choice) is int for choice in answer)


def checked_election(rule: Bound[list[Position]]) -> Callable[..., list[Position]]:
    """An election whose answer is who goes, so that as many stay as there are seats."""

    def elect(ballots: Sequence[Ballot], ages: Sequence[int], seats: int) -> list[Position]:
        gone: Any = rule(ballots, ages, seats)
        leave = max(0, len(ages) - seats)
        known = isinstance(gone, list) and all(type(place) is int and 0 <= place < len(ages) for place in gone)
        if not known or len(gone) != leave or len(set(gone)) != leave:
            wanted = f"a list of {leave} different positions from 0 to {len(ages) - 1}, those who go"
            raise refusal("election", rule.name, gone, wanted)
        return gone  # type: ignore[no-any-return]

    return elect


# Rules that make models


def checked_proposal(make: Propose) -> Propose:
    """A proposal of which every part answers with what it should."""
    if isinstance(make, partial):  # an aggregator, with what is done before it
        aggregate, *others = make.args
        return partial(make.func, checked_pipeline(aggregate), *others)
    return partial(_proposed, make)


def _proposed(make: Propose, gathered: Gathered) -> list[Proposed] | Asking:
    made: Any = make(gathered)
    return _heard(make, gathered, made) if isgenerator(made) else _checked_models(make, gathered, made)


def _heard(make: Propose, gathered: Gathered, asking: Any) -> Asking:
    """The same questions to clients, and at the end a checked answer."""
    return _checked_models(make, gathered, (yield from asking))


def _checked_models(make: Propose, gathered: Gathered, made: object) -> list[Proposed]:
    name, like = getattr(make, "name", str(make)), gathered.models.parameters[0]
    if not isinstance(made, list) or not all(isinstance(new, Proposed) for new in made):
        raise refusal("proposal", name, made, "a list of lidfl.protocol.Proposed")
    return [replace(new, parameters=as_vector("proposal", name, new.parameters, like)) for new in made]


def checked_pipeline(pipeline: Pipeline) -> Pipeline:
    """An aggregator, with what is done before it, of which every part answers with what it should."""
    steps = tuple(replace(step, function=partial(_weights, step)) for step in pipeline.steps)
    return Pipeline(steps, replace(pipeline.rule, function=partial(_aggregated, pipeline.rule)))


def _weights(step: Bound[Any], updates: Updates, **known: object) -> Any:
    """What a pre-aggregator answers; its options and its context are as they were."""
    weights = step.function(updates, **known)
    fits = isinstance(weights, np.ndarray) and weights.ndim == 2 and weights.dtype.kind in "fiub"
    if not fits or len(weights) == 0 or weights.shape[1] != len(updates):
        wanted = f"an array of weights, a row for each new update and {len(updates)} columns"
        raise refusal("pre-aggregator", step.name, weights, wanted)
    return weights


def _aggregated(rule: Bound[Any], updates: Updates, **known: object) -> Any:
    """What an aggregator answers: one vector, or groups of rows."""
    answer = rule.function(updates, **known)
    if isinstance(answer, list) and all(_are_rows(group, updates) for group in answer):
        return answer
    if isinstance(answer, list):
        wanted = f"groups as arrays of rows from 0 to {len(updates) - 1}"
        raise refusal("aggregator", rule.name, answer, wanted)
    return as_vector("aggregator", rule.name, answer, updates[0])


def _are_rows(group: object, updates: Models) -> bool:
    if not isinstance(group, np.ndarray) or group.ndim != 1 or group.dtype.kind != "i":
        return False
    return len(group) == 0 or (group.min() >= 0 and group.max() < len(updates))
