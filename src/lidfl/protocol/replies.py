"""Where replies enter: each is checked once, and what is wrong is counted and treated as no reply."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from lidfl.lazily import torch
from lidfl.protocol.messages import Choose, ModelList, Replies, Trained, Validate, Vote
from lidfl.types import Ballot, Client, Parameters, Position

T = TypeVar("T")


class Malformed(ValueError):
    """Why a reply is not used, in a word or two."""


def valid_updates(
    replies: Replies, offers: Mapping[Client, tuple[Position, ...]], models: ModelList
) -> tuple[dict[Client, Trained], Counter[str]]:
    """The usable updates by client, in the order of the offers, and the others counted by what is wrong."""

    def check(client: Client, reply: object) -> Trained:
        if not isinstance(reply, Trained) or not isinstance(reply.update, torch.Tensor):
            raise Malformed("wrong type")
        if _kind(reply.update) != _kind(models.parameters) or type(reply.parent) is not int:
            raise Malformed("wrong type")
        if reply.update.shape != models.parameters.shape[1:]:
            raise Malformed("wrong shape")
        if reply.parent not in offers[client]:
            raise Malformed("no such model")
        if not all_finite(
            models.parameters[reply.parent] + reply.update
        ):  # a finite update may overflow its parent
            raise Malformed("not finite")
        return Trained(reply.parent, reply.update.detach(), reply.new is True)

    return _collect(replies, list(offers), check)


def all_finite(vector: Parameters) -> bool:
    """Whether a model has neither an infinity nor a NaN."""
    return bool(vector.abs().max().isfinite())


def _kind(tensor: torch.Tensor) -> tuple[torch.dtype, torch.layout, torch.device]:
    """What must agree for two tensors to be added, besides their shapes."""
    return tensor.dtype, tensor.layout, tensor.device


def valid_ballots(replies: Replies, request: Vote | Choose) -> tuple[dict[Client, Ballot], Counter[str]]:
    """The usable ballots by client, in the order of the voters, and the others counted by what is wrong."""
    candidates = range(len(request.models))

    def check(_client: Client, reply: object) -> Ballot:
        if not isinstance(reply, tuple) or any(type(choice) is not int for choice in reply):
            raise Malformed("wrong type")
        if len(reply) > request.ranks or len(set(reply)) < len(reply):
            raise Malformed("wrong shape")
        if any(choice not in candidates for choice in reply):
            raise Malformed("no such model")
        return reply

    return _collect(replies, request.voters, check)


def valid_verdicts(replies: Replies, request: Validate) -> tuple[dict[Client, bool], Counter[str]]:
    """The usable verdicts by client, and the others counted by what is wrong."""

    def check(_client: Client, reply: object) -> bool:
        if type(reply) is not bool:
            raise Malformed("wrong type")
        return reply

    return _collect(replies, request.voters, check)


def _collect(
    replies: Replies, asked: Sequence[Client], check: Callable[[Client, object], T]
) -> tuple[dict[Client, T], Counter[str]]:
    """The one valid reply of each client that was asked."""
    received: dict[Client, list[object]] = {client: [] for client in asked}
    rejected: Counter[str] = Counter()
    for client, reply in replies:
        if client in received:
            received[client].append(reply)
        else:
            rejected["not asked"] += 1
    valid = {}
    for client, sent in received.items():
        try:
            valid[client] = check(client, _only(sent))
        except Malformed as reason:
            rejected[str(reason)] += 1
    return valid, rejected


def _only(sent: Sequence[object]) -> object:
    if not sent:
        raise Malformed("missing")
    if len(sent) > 1:
        raise Malformed("sent twice")
    return sent[0]


def first_choices(ballots: Sequence[Ballot], candidates: int) -> list[int]:
    """How many ballots put each candidate first; an empty ballot is an abstention."""
    tally = [0] * candidates
    for ballot in ballots:
        if ballot:
            tally[ballot[0]] += 1
    return tally
