"""The nodes of a federation: who is there, one reply from each that is asked, and how each has behaved.

This, `exchange` and `opening` are the only modules that call Grid.
"""

import logging
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic

from flwr.app import RecordDict
from flwr.serverapp import Grid

from lidfl.flower.exchange import Conduct, Exchange, NodeId, Overdue, Question, TakeLate
from lidfl.flower.opening import Refused
from lidfl.flower.patience import Patience
from lidfl.flower.signing import Signer
from lidfl.flower.window import Window

log = logging.getLogger(__name__)

MOST_OVERDUE = 200
"""So many late replies are looked for, to have them counted for the next round, or removed."""


@dataclass(frozen=True)
class Limits:
    """What a fleet is allowed."""

    in_flight: int = 8
    """Messages out at a time, to begin with and at least: see `window`."""
    deadline: float = 120.0
    """Seconds for one message at most, from its sending to its reply."""
    poll: float = 0.2
    """Seconds between two looks for replies."""
    patience: float = 10.0
    """Seconds within which no node is slow, however quick others are."""
    share: float = 0.0
    """Which part of the nodes is taken to be honest; that many set the pace."""


@dataclass(frozen=True)
class Tally:
    """What has gone over the network."""

    sent: int = 0
    """Bytes to the nodes."""
    received: int = 0
    """Bytes from the nodes."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """Messages that brought no reply, by reason."""

    def since(self, earlier: "Tally") -> "Tally":
        """What has come since an earlier tally."""
        refused = Counter(self.refused) - Counter(earlier.refused)
        return Tally(self.sent - earlier.sent, self.received - earlier.received, dict(refused))


class Fleet:
    """The nodes of a federation, as far as the server can reach them."""

    def __init__(self, grid: Grid, limits: Limits, signer: Signer | None = None) -> None:
        self.grid = grid
        self.limits = limits
        self.signer = signer or Signer(None)
        self.patience = Patience(limits.patience, limits.deadline, limits.share)
        self.window = Window(limits.in_flight)
        self.online: list[NodeId] = []
        """The nodes that counted as online when that was last asked."""
        self.conduct: dict[NodeId, Conduct] = {}
        self.overdue: OrderedDict[str, Overdue] = OrderedDict()
        """Messages whose replies are not waited for any more, and may come nevertheless."""
        self.late_look = 0.0
        """When late replies were last looked into."""
        self.one_by_one = False
        """Whether replies are looked for one by one, since a look for many has failed."""

    @property
    def refused(self) -> Counter[str]:
        """Messages that brought no reply, by reason."""
        return sum((conduct.refused for conduct in self.conduct.values()), Counter())

    def tally(self) -> Tally:
        """What has gone over the network so far."""
        every = self.conduct.values()
        return Tally(sum(c.sent for c in every), sum(c.received for c in every), dict(self.refused))

    def nodes(self) -> list[NodeId]:
        """The nodes that count as online, in a fixed order."""
        self.online = sorted(self.grid.get_node_ids())
        return self.online

    def ask(
        self,
        contents: Mapping[NodeId, RecordDict],
        kind: str,
        group: str,
        most_bytes: int,
        deadline: float | None = None,
        late: TakeLate | None = None,
    ) -> Iterator[tuple[NodeId, RecordDict]]:
        """Each node's reply, as they come in; none from nodes that fail, lie about who they are or are late.

        How long they are waited for says `patience`, but never longer than the deadline. What comes later is handed
        to `late`, while something else is asked.
        """
        questions = {node: Question(content, kind, group, most_bytes) for node, content in contents.items()}
        for node in questions:
            self.conduct.setdefault(node, Conduct()).asked += 1
        began = monotonic()
        yield from Exchange(self, questions, kind, deadline or self.limits.deadline, late).replies()
        self.patience.passed(monotonic() - began, len(self.conduct))

    def give_up(self, name: str, left: Overdue) -> None:
        """Wait for a reply no longer."""
        self.overdue[name] = left
        if len(self.overdue) > MOST_OVERDUE:
            self.overdue.popitem(last=False)

    def refuse(self, node: NodeId, refusal: Refused) -> None:
        """Remember that a message has brought no reply."""
        conduct = self.conduct[node]
        conduct.refused[refusal.reason] += 1
        conduct.reason = f"{refusal.reason} {refusal.details}".strip()[:300]
        log.warning("node %d: %s", node, conduct.reason)
