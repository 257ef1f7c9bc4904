"""Which node is which client.

A client's number decides which random batches it draws, so a node keeps its number. A node names its partition
once, and gets that number if nobody else has it. Whatever they claim, each node has one number and each
number has one node.
"""

import json
import logging
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from time import monotonic, sleep

from lidfl.files import write_atomically
from lidfl.flower.codec import Ask, Unreadable, pack_ask, read_reply
from lidfl.flower.exchange import NodeId
from lidfl.flower.fleet import Fleet
from lidfl.flower.roll import Roll
from lidfl.types import Client

log = logging.getLogger(__name__)

HELLO = 30.0
"""Seconds for a hello: an import or two, on a machine that may be busy."""
RETRY = 60.0
"""Seconds before a node that did not name its partition is asked again, and twice as many each time that follows:
it must not hold up every round."""


class Members:
    """The nodes that take part, remembered in a file beside the run."""

    def __init__(self, fleet: Fleet, num_clients: int, file: Path) -> None:
        self.fleet = fleet
        self.num_clients = num_clients
        self.file = file
        saved: dict[str, NodeId] = json.loads(file.read_text()) if file.exists() else {}
        self.node_of: dict[Client, NodeId] = {int(client): node for client, node in saved.items()}
        self.written = dict(self.node_of)
        self.asked: dict[NodeId, float] = {}
        self.unheard: Counter[NodeId] = Counter()
        """How often in a row a node has not named its partition."""
        self.heard: set[NodeId] = set()
        self.roll: Roll | None = None
        """Who takes part in this round, where that may change."""

    def wait(self, seconds: float) -> None:
        """Let nodes join until there is one for every client and each has answered, but no longer than this.

        A node may be online and deaf: if a server is killed while it uploads a request, the nodes that were asked
        wait for the rest of it, until Flower finds that the run is over, about a minute later.
        """
        until = monotonic() + seconds
        while True:
            here = self.present()
            self._wishes([node for node in here.values() if node not in self.heard])
            heard = len(self.heard.intersection(here.values()))
            if heard >= self.num_clients or monotonic() > until:
                break
            sleep(0.5)
        log.info("%d of %d clients are there", heard, self.num_clients)

    def present(self) -> dict[Client, NodeId]:
        """The node of every client that is online; newcomers are taken in."""
        online = self.fleet.nodes()
        here = {client: node for client, node in self.node_of.items() if node in online}
        newcomers = [node for node in online if node not in here.values() and self._may_be_asked(node)]
        if not newcomers or len(here) == self.num_clients:
            return here
        for node, wish in sorted(self._wishes(newcomers).items()):
            free = [client for client in range(self.num_clients) if client not in here]
            if free:
                here[wish if wish in free else free[0]] = node
        self.node_of |= here
        self.remember()
        return here

    def remember(self) -> None:
        """Write which node is which client, if that has changed."""
        if self.node_of != self.written:
            write_atomically(self.file, json.dumps(self.node_of).encode())
            self.written = dict(self.node_of)

    def _may_be_asked(self, node: NodeId) -> bool:
        return (
            node not in self.asked or monotonic() - self.asked[node] >= RETRY * 2 ** min(self.unheard[node], 10) / 2
        )

    def _hello_time(self) -> float:
        """A hello is no work: who is deaf is not waited for as long as one that trains."""
        return min(self.fleet.limits.deadline, HELLO)

    def _wishes(self, nodes: list[NodeId]) -> Mapping[NodeId, Client]:
        """The partition that each node names; a node that does not answer will be asked again."""
        hellos = {node: pack_ask(Ask("hello")) for node in nodes}
        self.asked |= dict.fromkeys(nodes, monotonic())
        self.unheard.update(nodes)
        wishes = {}
        for node, content in self.fleet.ask(hellos, "query", "hello", most_bytes=0, deadline=self._hello_time()):
            self.heard.add(node)
            self.unheard.pop(node, None)
            try:
                reply = read_reply(content, dim=0)
            except Unreadable:
                continue
            if reply.kind == "hello":
                wishes[node] = reply.partition
        return wishes
