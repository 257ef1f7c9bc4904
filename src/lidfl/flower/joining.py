"""Nodes that join and leave while it runs: who has which number, and rounds with whoever is on the roll."""

from pathlib import Path

from lidfl.flower.exchange import NodeId
from lidfl.flower.fleet import Fleet
from lidfl.flower.members import Members
from lidfl.flower.patience import share_of
from lidfl.flower.roll import Registered, Roll, Seating, read_names, write_names
from lidfl.protocol import Canonical, ModelList, Round
from lidfl.runs.server import Server
from lidfl.types import Client

AT_ONCE = 8
"""So many newcomers are asked who they are at a time: a thousand must not hold up a round."""


class OpenMembers(Members):
    """The nodes on the roll; their numbers are kept in roll.json beside the run.

    A name that is on the server's roll keeps its number for good. A newcomer has the number of its partition if
    that is one of the planned and was never given, else the lowest that never was.
    """

    def __init__(self, fleet: Fleet, seating: Seating, registered: Registered, folder: Path) -> None:
        super().__init__(fleet, seating.planned.num_clients, folder / "nodes.json")
        self.seating = seating
        self.registered = registered
        self.numbers_file = folder / "roll.json"
        self.numbers: dict[str, Client] = read_names(self.numbers_file)

    def present(self) -> dict[Client, NodeId]:
        """The node of every client that is on the roll and online; newcomers are taken in, a few at a time."""
        registered, online = self.registered.nodes(), set(self.fleet.nodes())
        unknown = {node: name for name, node in registered.items() if node in online and name not in self.numbers}
        asked = [node for node in unknown if self._may_be_asked(node)][:AT_ONCE]
        if asked:
            for node, wish in sorted(self._wishes(asked).items()):
                self.numbers[unknown[node]] = self._number(wish)
            write_names(self.numbers_file, self.numbers)
        self.node_of = {self.numbers[name]: node for name, node in registered.items() if name in self.numbers}
        self.remember()
        return {client: node for client, node in self.node_of.items() if node in online}

    def _number(self, wish: int) -> Client:
        given = set(self.numbers.values())
        if 0 <= wish < self.num_clients and wish not in given:
            return wish
        return min(set(range(len(given) + 1)) - given)

    def call_roll(self) -> Roll:
        """Who takes part in the round that begins."""
        self.present()
        gone = set(self.numbers.values()) - self.node_of.keys()
        left = sum(client < self.num_clients for client in gone)
        self.roll = self.seating.seat(tuple(sorted(self.node_of)), left)
        self.fleet.patience.share = share_of(self.roll.experiment)
        return self.roll


class OpenServer(Server):
    """Plays each round with those who are on the roll when it begins, and as many seats as they need."""

    def __init__(self, members: OpenMembers, canonical: Canonical | None, secret: int) -> None:
        super().__init__(members.seating.planned, canonical, secret)
        self.members = members
        self.canonical = canonical

    def round(self, models: ModelList, round_index: int, skipped: int = 0) -> Round:
        """The generator of one round."""
        roll = self.members.call_roll()
        now = Server(roll.experiment, self.canonical, self.secret, roll.clients)
        return now.round(models, round_index, skipped)
