"""Brings a round's requests to the fleet: the `answer` of a real federation.

Only what a client lacks is sent. The server remembers which models each client has confirmed; a client that has
lost them says so and is sent them again.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import TypeAlias

import torch

from lidfl.config import Experiment
from lidfl.flower.codec import Ask, Reply, Unreadable, Vector, Work, content_hash, pack_ask, read_reply
from lidfl.flower.fleet import Fleet, NodeId
from lidfl.flower.members import Members
from lidfl.protocol import Choose, Replies, Request, Train, Trained, Vote
from lidfl.types import Client, Position, Updates

Asks: TypeAlias = dict[Client, Ask]
MESSAGE_TYPE = {"train": "train", "choose": "evaluate", "vote": "evaluate"}


class Answers:
    """Answers requests with what the nodes of a fleet reply."""

    def __init__(self, experiment: Experiment, fleet: Fleet, members: Members) -> None:
        self.fleet = fleet
        self.members = members
        self.work = Work(
            *(experiment.seed, experiment.local_steps, experiment.batch_size),
            *(experiment.learning_rate, experiment.momentum),
        )
        self.held: defaultdict[Client, set[str]] = defaultdict(set)
        """The models that each client has, as far as it has confirmed them."""
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def answer(self, request: Request) -> Replies:
        """The replies of the nodes that are there, each under its client's number."""
        began = perf_counter()
        try:
            match request:
                case Train():
                    return self._train(request)
                case Choose():
                    return self._ballots("choose", request)
                case Vote():
                    return self._ballots("vote", request)
        finally:
            self.seconds[type(request).__name__.lower()] += perf_counter() - began

    def _train(self, request: Train) -> Replies:
        names = _Models(request.models.parameters)
        asks = {
            client: Ask("train", request.round_index, client, names.at(offer), work=self.work)
            for client, offer in request.offers.items()
        }
        return [(client, _trained(reply, request.offers[client])) for client, reply in self._exchange(asks, names)]

    def _ballots(self, kind: str, request: Vote | Choose) -> Replies:
        names = _Models(request.models)
        every = names.at(range(len(request.models)))
        asks = {
            client: Ask(kind, request.round_index, client, every, request.ranks, self.work)
            for client in request.voters
        }
        replies = list(self._exchange(asks, names))
        if kind == "vote":  # what is no candidate any more, a client forgets
            for client in asks:
                self.held[client] &= set(every)
        return [(client, reply.ballot if reply and reply.kind == "ballot" else None) for client, reply in replies]

    def _exchange(self, asks: Asks, names: "_Models") -> Iterator[tuple[Client, Reply | None]]:
        """Every client's reply; None stands for one that makes no sense."""
        again: Asks = {}
        for client, reply in self._once(asks, names, lambda client: self.held[client]):
            if reply is not None and reply.kind == "missing":
                self.held[client].clear()
                again[client] = asks[client]
            else:
                yield client, reply
        if again:
            yield from self._once(again, names, lambda _: frozenset())

    def _once(
        self, asks: Asks, names: "_Models", held: Callable[[Client], frozenset[str] | set[str]]
    ) -> Iterator[tuple[Client, Reply | None]]:
        members = self.members.present()
        contents: dict[NodeId, Ask] = {}
        for client in asks.keys() & members.keys():
            ask = asks[client]
            contents[members[client]] = replace(ask, vectors=names.without(ask.models, held(client)))
        if not contents:
            return
        kind, round_index = next((ask.kind, ask.round_index) for ask in contents.values())
        packed = {node: pack_ask(contents[node]) for node in sorted(contents)}
        for node, content in self.fleet.ask(packed, MESSAGE_TYPE[kind], str(round_index), 4 * names.dim):
            ask = contents[node]
            try:
                reply = read_reply(content, names.dim)
            except Unreadable:
                yield ask.client, None
                continue
            if reply.kind != "missing" and kind != "choose":
                self.held[ask.client] |= set(ask.models)
            yield ask.client, reply


class _Models:
    """The models of one request by their names."""

    def __init__(self, rows: Updates) -> None:
        vectors: list[Vector] = [row.numpy() for row in rows.detach().cpu().float()]
        self.names = [content_hash(vector) for vector in vectors]
        self.vectors = dict(zip(self.names, vectors, strict=True))
        self.dim = rows.shape[1]

    def at(self, positions: Sequence[Position]) -> tuple[str, ...]:
        """The names of the models at these positions."""
        return tuple(self.names[position] for position in positions)

    def without(self, names: Sequence[str], held: frozenset[str] | set[str]) -> Mapping[str, Vector]:
        """Those of the models that are not among the ones held."""
        return {name: self.vectors[name] for name in names if name not in held}


def _trained(reply: Reply | None, offer: Sequence[Position]) -> Trained | None:
    """The update in a reply, with the position that its sender means; None if there is no sense in it."""
    if reply is None or reply.kind != "trained" or reply.update is None:
        return None
    if not 0 <= reply.parent < len(offer):
        return None
    return Trained(offer[reply.parent], torch.from_numpy(reply.update))
