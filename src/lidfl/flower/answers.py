"""Brings a round's requests to the fleet, and the replies back.

Only what a client lacks is sent. The server remembers which models each client has confirmed; a client that has
lost them says so and is sent them again.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import torch
from flwr.app import RecordDict

from lidfl.errors import LidflError
from lidfl.flower.codec import Ask, Reply, Unreadable, Vector, Work, content_hash, new_salt, pack_ask, read_reply
from lidfl.flower.exchange import NodeId, TakeLate
from lidfl.flower.fleet import Fleet
from lidfl.flower.members import Members
from lidfl.protocol import Choose, Replies, Request, Train, Trained, Vote
from lidfl.settings.experiment import Experiment
from lidfl.types import Ballot, Client, Models, Position

Asks: TypeAlias = dict[Client, Ask]
MESSAGE_TYPE = {"train": "train", "choose": "evaluate", "vote": "evaluate"}


def work_of(experiment: Experiment) -> Work:
    """What clients are told about how to train, judge and choose."""
    return Work(
        seed=experiment.seed,
        steps=experiment.local_steps,
        batch_size=experiment.batch_size,
        learning_rate=experiment.learning_rate,
        momentum=experiment.momentum,
        judge=experiment.judge,
        deploy=experiment.deploy,
        rounds=experiment.rounds,
    )


class Answers:
    """Answers requests with what the nodes of a fleet reply."""

    def __init__(self, experiment: Experiment, fleet: Fleet, members: Members) -> None:
        self.fleet = fleet
        self.members = members
        self.experiment = experiment
        self.work = work_of(experiment)
        self.held: defaultdict[Client, set[str]] = defaultdict(set)
        """The models that each client has, as far as it has confirmed them."""
        self.overdue: dict[Client, tuple[str, ...]] = {}
        """Ballots that came too late for their vote, by the names of models; they count for the next."""
        self.votes = 0
        self.last_ballot: dict[Client, int] = {}
        """In which vote each client has cast the last ballot that has come."""
        self.trainers: dict[Client, NodeId] = {}
        """Who was asked to train last."""

    @property
    def settings(self) -> Experiment:
        """The experiment with as many clients as there are now."""
        return self.members.roll.experiment if self.members.roll else self.experiment

    def answer(self, request: Request) -> Replies:
        """The replies of the nodes that are there, each under its client's number."""
        match request:
            case Train():
                return self._train(request)
            case Choose():
                return self._ballots("choose", request)
            case Vote():
                return self._ballots("vote", request)
            case _:  # no method that asks so is played with real nodes
                raise LidflError(f"real nodes do not answer {type(request).__name__}")

    def _train(self, request: Train) -> Replies:
        named = NamedModels(request.models.parameters)
        asks = {
            client: Ask("train", request.round_index, client, named.at(offer), work=self.work)
            for client, offer in request.offers.items()
        }
        return [(client, _trained(reply, request.offers[client])) for client, reply in self._exchange(asks, named)]

    def _ballots(self, kind: str, request: Vote | Choose) -> Replies:
        named = NamedModels(request.models)
        every = named.at(range(len(request.models)))
        asks = {
            client: Ask(kind, request.round_index, client, every, request.ranks, self.work)
            for client in request.voters
        }
        replies = list(self._exchange(asks, named))
        ballots = [
            (client, reply.ballot if reply and reply.kind == "ballot" else None) for client, reply in replies
        ]
        if kind == "vote":
            self.last_ballot |= {client: self.votes for client, ballot in ballots if ballot is not None}
            ballots += self._overdue_ballots(asks, {client for client, _ in replies}, named, request.ranks)
            for client in asks:  # what is no candidate any more, a client forgets
                self.held[client] &= set(every)
        return ballots

    def _overdue_ballots(
        self, voters: Iterable[Client], heard: set[Client], named: "NamedModels", ranks: int
    ) -> list[tuple[Client, Ballot]]:
        """What is left of late ballots, for voters of whom nothing newer was heard: each counts once."""
        late = {client: self.overdue.pop(client) for client in voters if client in self.overdue}
        places = {name: place for place, name in reversed(list(enumerate(named.names)))}  # of equals the first
        return [
            (client, tuple(places[name] for name in names if name in places)[:ranks])
            for client, names in late.items()
            if client not in heard
        ]

    def _take_late(self, clients: Mapping[NodeId, Client], models: Sequence[str]) -> TakeLate:
        """What is done with a ballot on these models that comes too late."""
        vote = self.votes

        def take(node: NodeId, content: RecordDict) -> None:
            try:
                reply = read_reply(content, dim=0)
            except Unreadable:
                return
            client = clients[node]
            if reply.kind == "ballot" and vote > self.last_ballot.get(client, -1):
                self.last_ballot[client] = vote
                places = [place for place in dict.fromkeys(reply.ballot) if 0 <= place < len(models)]
                self.overdue[client] = tuple(dict.fromkeys(models[place] for place in places))

        return take

    def _exchange(self, asks: Asks, named: "NamedModels") -> Iterator[tuple[Client, Reply | None]]:
        """Every client's reply; None stands for one that makes no sense."""
        again: Asks = {}
        for client, reply in self._once(asks, named):
            if reply is not None and reply.kind == "missing":
                self.held[client].clear()
                again[client] = asks[client]
            else:
                yield client, reply
        yield from self._once(again, named)

    def _once(self, asks: Asks, named: "NamedModels") -> Iterator[tuple[Client, Reply | None]]:
        """The replies of those clients that are there, each sent what it does not hold."""
        if not asks:
            return
        members = self.members.present()
        sent = {members[client]: ask for client, ask in asks.items() if client in members}
        if not sent:
            return
        some = next(iter(sent.values()))  # all are of one kind and one round
        if some.kind == "train":
            self.trainers = {ask.client: node for node, ask in sent.items()}
        salt = new_salt()  # the same for all, so that a model is stored and uploaded once
        contents = {node: pack_ask(self._with_models(sent[node], named), salt) for node in sorted(sent)}
        late = None
        if some.kind == "vote":  # what is trained or chosen late is of no use: the list has moved on
            self.votes += 1
            late = self._take_late({node: ask.client for node, ask in sent.items()}, some.models)
        kind, group = MESSAGE_TYPE[some.kind], str(some.round_index)
        arrived = self.fleet.ask(contents, kind, group, 4 * named.dim, late=late)
        for node, content in arrived:
            ask = sent[node]
            try:
                reply = read_reply(content, named.dim)
            except Unreadable:
                yield ask.client, None
                continue
            if reply.kind != "missing" and ask.kind != "choose":
                self.held[ask.client] |= set(ask.models)
            yield ask.client, reply

    def _with_models(self, ask: Ask, named: "NamedModels") -> Ask:
        lacking = (name for name in ask.models if name not in self.held[ask.client])
        return replace(ask, vectors=named.of(lacking))


class NamedModels:
    """The models of one request by their names."""

    def __init__(self, rows: Models) -> None:
        vectors: list[Vector] = [row.numpy() for row in rows.detach().cpu().float()]
        self.names = [content_hash(vector) for vector in vectors]
        self.vectors = dict(zip(self.names, vectors, strict=True))
        self.dim = rows.shape[1]

    def at(self, positions: Sequence[Position]) -> tuple[str, ...]:
        """The names of the models at these positions."""
        return tuple(self.names[position] for position in positions)

    def of(self, names: Iterable[str]) -> dict[str, Vector]:
        """The models of these names."""
        return {name: self.vectors[name] for name in names}


def _trained(reply: Reply | None, offer: Sequence[Position]) -> Trained | None:
    """The update in a reply, with the position that its sender means; None if it makes no sense."""
    if reply is None or reply.kind != "trained" or reply.update is None:
        return None
    if not 0 <= reply.parent < len(offer):
        return None
    return Trained(offer[reply.parent], torch.from_numpy(reply.update))
