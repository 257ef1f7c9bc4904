"""What a run costs: gradient steps, what travels, ballots.

Counted where requests meet replies, so that it holds for any method. What is counted is what a method needs, not
what a network adds: a model, or an update, is a vector of 4-byte numbers, and none travels to a client that has it.

- Where everyone votes, everyone has the list, and only new candidates travel to voters. A committee is drawn anew
  each round, so nobody has it: who trains is sent the models that it may start from, and a voter what it lacks.
- A juror is sent what others have trained, not its own.
- A ballot is some small numbers, and counts as a vote, not in bytes.
- What a client trains for itself alone, and chooses from that, stays with it.
- What a server does with images of its own is no client's cost.

With real nodes the bytes are those that went over the network.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from lidfl.protocol import (
    Answer,
    Choose,
    Replies,
    Request,
    ServerLosses,
    ServerTrains,
    Train,
    Validate,
    Vote,
    lid_round,
    local_round,
    single_round,
)
from lidfl.runs.directory import Summary
from lidfl.runs.record import RoundRecord, Spent
from lidfl.settings.experiment import Experiment
from lidfl.types import Client

FLOAT = 4
"""Bytes of a parameter on the wire."""


@dataclass(frozen=True)
class Costs:
    """What a run cost; None what is not known."""

    gradient_steps: int
    """By all clients, in all rounds."""
    bytes_down: int | None
    """Models, to clients."""
    bytes_up: int | None
    """Updates, from clients."""
    ballots: int
    """Votes, and choices of jurors."""

    @property
    def bytes_sent(self) -> int | None:
        """All that travels."""
        return None if self.bytes_down is None or self.bytes_up is None else self.bytes_down + self.bytes_up


class Tally:
    """Counts what a round costs while it is played."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.spent = Spent()
        self.everyone_votes = experiment.keeps_list and experiment.voters == 0
        self._sent: dict[Client, set[int]] = {}
        """The models of the list, by id, that each client was sent in this round."""
        self._trained: set[Client] = set()

    def counting(self, answer: Answer) -> Answer:
        """The same answers, counted on their way."""

        def counted(request: Request) -> Replies:
            replies = list(answer(request))
            self.spent += self._cost(request, {client for client, _ in replies})
            return replies

        return counted

    def _cost(self, request: Request, clients: set[Client]) -> Spent:
        """What a request cost those who answered it."""
        match request:
            case Train():
                return self._training(request, clients.intersection(request.offers))
            case Choose() | Vote():
                ahead = Spent(self.experiment.lookahead * len(request.models) * len(clients))
                return ahead + self._voting(request, clients)
            case Validate():  # who is asked has trained all models that were accepted, and lacks the new one
                return Spent(0, len(clients), ballots=len(clients))
            case ServerLosses() | ServerTrains():  # the server's own work, with its own images
                return Spent()

    def _training(self, request: Train, clients: set[Client]) -> Spent:
        steps = self.experiment.local_steps * len(clients)
        if request.alone:
            return Spent(steps)
        self._trained |= clients
        down = 0
        for client in clients if not self.everyone_votes else ():
            sent = self._sent.setdefault(client, set())
            before = len(sent)
            sent.update(request.models.ids[place] for place in request.offers[client])
            down += len(sent) - before
        return Spent(steps, down, len(clients))

    def _voting(self, request: Choose | Vote, clients: set[Client]) -> Spent:
        """What travels to voters and jurors, and their ballots."""
        if isinstance(request, Vote):
            return Spent(0, self._list(request, clients), ballots=len(clients))
        if len(request.known) == 0:  # a client that chooses among models of its own
            return Spent()
        return Spent(0, self._pool(request, clients), ballots=len(clients))

    def _pool(self, request: Choose, clients: set[Client]) -> int:
        """The models that jurors are sent: all, but of what everyone has trained not their own."""
        own = len(clients & self._trained) if len(request.models) == len(self._trained) else 0
        return len(request.models) * len(clients) - own

    def _list(self, request: Vote, clients: set[Client]) -> int:
        """The candidates that voters are sent: new ones where everyone has the list, or else what they lack."""
        if self.everyone_votes:
            return (len(request.models) - request.seats) * len(clients)
        ids = request.candidates.ids
        return len(ids) * len(clients) - sum(
            len(self._sent.get(client, set()).intersection(ids)) for client in clients
        )


def run_costs(records: Iterable[RoundRecord], parameters: int) -> Costs | None:
    """What a run of models with so many parameters cost; None if a record of an earlier version does not tell."""
    spent, network = Spent(), [0, 0]
    measured = False
    for record in records:
        if record.spent is None:
            return None
        spent += record.spent
        if record.traffic is not None:
            measured = True
            network = [network[0] + record.traffic["sent"], network[1] + record.traffic["received"]]
    down, up = network if measured else (FLOAT * parameters * spent.down, FLOAT * parameters * spent.up)
    return Costs(spent.steps, down, up, spent.ballots)


def costs_of(experiment: Experiment, summary: Summary, parameters: int | None = None) -> Costs | None:
    """What a run cost, as its summary tells; of an earlier version's, which does not, what follows from settings.

    None where nothing follows. `parameters` is how many numbers a model has, which earlier summaries do not tell.
    """
    if "gradient_steps" in summary:
        return Costs(**{f.name: summary[f.name] for f in fields(Costs)})
    each, rounds = _each_round(experiment, summary), summary.get("diverged_at") or experiment.rounds
    if each is None:
        return None
    steps, down, up, ballots = (round(rounds * number) for number in each)
    size = FLOAT * parameters if parameters else None
    return Costs(steps, size and size * down, size and size * up, ballots)


def _each_round(experiment: Experiment, summary: Summary) -> tuple[float, float, float, float] | None:
    """Steps, models down, updates up and ballots of a mean round, if all clients are always there and all vote."""
    e, m = experiment, experiment.num_clients
    if e.availability < 1 or e.voters or e.workers or e.lookahead:
        return None
    if e.plays.play is local_round:
        return m * e.local_steps, 0, 0, 0
    if e.plays.ideal or e.plays.play is single_round:
        trains = e.num_honest if e.plays.ideal else m
        return trains * e.local_steps, trains, trains, 0
    candidates = summary.get("candidates_per_round", e.candidates if not e.compares_updates else None)
    if e.plays.play is not lid_round or candidates is None:
        return None
    trains = m if e.compares_updates else e.candidates
    jurors = min(e.candidates, m) if "jurors" in e.proposal else 0
    return trains * e.local_steps, jurors * (trains - 1) + m * candidates, trains, m + jurors
