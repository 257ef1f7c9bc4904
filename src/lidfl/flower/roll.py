"""The roll of a federation: who takes part, and what the guarantee is worth with so many.

Nodes may join and leave while it runs (`open-roll=true`). Whoever has a key in the folder `nodes/` of `lidfl
server` is registered; `serving` writes the names and node ids of all that are to a file, which the server reads
before every round. A node is on the roll from its first hello until its key is removed; whether it is online plays
no part, so nobody changes the roll but the operator. A name has one number for good: a node with a new key keeps it
if its file keeps its name, and the number of one that was removed is nobody else's.

The number of seats follows the roll: as many models as the settings demand for so many clients. How many of them
are taken to be honest is for the operator to say: a fraction of whatever roll there is (`byzantine_fraction`), or a
number that does not grow by who joins (`vouched`). Newcomers that are all malicious break the first, and make the
list longer under the second; `Roll.margin_at_worst` says by how much.
"""

import json
import logging
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lidfl.errors import LidflError
from lidfl.files import write_atomically
from lidfl.flower.exchange import NodeId
from lidfl.settings.experiment import Experiment
from lidfl.theory import Electorate
from lidfl.types import Client

log = logging.getLogger(__name__)

VARIABLE = "LIDFL_ROLL"
"""The environment variable that names the file of registered nodes; `lidfl server` sets it."""


@dataclass(frozen=True)
class Roll:
    """Who takes part in a round."""

    clients: tuple[Client, ...]
    experiment: Experiment
    """The settings for so many clients."""
    founders: Electorate
    """Those that the operator has planned with."""
    left: int = 0
    """How many of the founders are gone."""

    @property
    def joined(self) -> int:
        """How many have come besides the founders."""
        return sum(client >= self.founders.num_clients for client in self.clients)

    @property
    def electorate(self) -> Electorate:
        """What the vote is taken to be."""
        e = self.experiment
        return Electorate(e.num_clients, e.assumed_honest, e.list_size)

    @property
    def margin_at_worst(self) -> int:
        """Honest ballots beyond the quota, if all who joined are malicious and all who left were honest.

        Below zero the others can vote out every good model.
        """
        return self.founders.num_honest - self.left - self.electorate.quota()

    def numbers(self) -> dict[str, int]:
        """What the record of a round has of it."""
        now = self.electorate
        return {
            "clients": len(self.clients),
            "joined": self.joined,
            "left": self.left,
            "honest": now.num_honest,
            "seats": now.list_size,
            "quota": now.quota(),
            "room": now.room,
            "margin_at_worst": self.margin_at_worst,
        }

    def told(self) -> str:
        """The roll in a sentence or two, as the operator reads it."""
        now, at_worst = self.electorate, max(self.founders.num_honest - self.left, 0)
        text = f"the roll has {len(self.clients)} nodes ({self.joined} joined, {self.left} left), "
        text += f"{now.num_honest} taken to be honest, {now.list_size} seats, quota {now.quota()}"
        if not (self.joined or self.left):
            return text
        worst = f"; if all who joined are malicious, {at_worst} are honest and the guarantee"
        if self.margin_at_worst >= 0:
            return f"{text}{worst} holds"
        return f"{text}{worst} does not hold: remove keys{_remedy(len(self.clients), at_worst)}"


def _remedy(clients: int, vouched: int) -> str:
    if not vouched:
        return ""
    return f", or set vouched={vouched} for a list of {Electorate.smallest(clients, vouched).list_size}"


@dataclass(frozen=True)
class Registered:
    """Reads which nodes have a key on the server's roll."""

    file: Path

    @classmethod
    def from_environment(cls) -> "Registered":
        """The file that the environment names."""
        path = os.environ.get(VARIABLE)
        if not path:
            raise LidflError("open-roll=true needs a roll: start the SuperLink with `lidfl server up`")
        return cls(Path(path))

    def nodes(self) -> dict[str, NodeId]:
        """The node of every name; none before the first has been registered."""
        return read_names(self.file)


def write_names(file: Path, nodes: Mapping[str, int]) -> None:
    """Write numbers by name."""
    write_atomically(file, json.dumps(dict(nodes), indent=1).encode())


def read_names(file: Path) -> dict[str, int]:
    """Numbers by name."""
    return (
        {str(name): int(number) for name, number in json.loads(file.read_text()).items()} if file.exists() else {}
    )


@dataclass
class Seating:
    """Fits an experiment to the roll."""

    planned: Experiment
    vouched: int = 0
    """How many are honest at least, whoever joins; 0 for the fraction that the experiment names."""
    last: Roll = field(init=False)

    def __post_init__(self) -> None:
        if not 0 <= self.vouched <= self.planned.num_clients:
            most = self.planned.num_clients
            raise LidflError(f"vouched must be from 1 to num-clients, {most}, or 0 to go by byzantine_fraction")
        if self.planned.plays.personal:
            raise LidflError(f"open-roll=true does not go with {self.planned.method}: leave it out")
        experiment = self._for(self.planned.num_clients)
        founders = Electorate(experiment.num_clients, experiment.assumed_honest, experiment.list_size)
        self.last = Roll((), experiment, founders)

    def seat(self, clients: tuple[Client, ...], left: int) -> Roll:
        """The roll of these clients; what changes is told. The last one stays if so many cannot be served."""
        if (clients, left) == (self.last.clients, self.last.left):
            return self.last
        try:
            self.last = Roll(clients, self._for(len(clients)), self.last.founders, left)
            (log.info if self.last.margin_at_worst >= 0 else log.warning)("%s", self.last.told())
        except LidflError as error:
            log.error("the roll stays at %d nodes, not %d: %s", len(self.last.clients), len(clients), error)
        return self.last

    def _for(self, clients: int) -> Experiment:
        """The planned settings with so many clients, and the list that they demand; a longer one if planned so."""
        plan, m = self.planned, max(clients, 1)
        changes: dict[str, Any] = {"num_clients": m, "voters": min(plan.voters, m), "workers": min(plan.workers, m)}
        if self.vouched:
            others = m - min(self.vouched, m)
            changes |= {"assumed_byzantine_fraction": math.ceil(1e6 * others / m) / 1e6}
        fitted = plan.with_settings(**changes, list_size=None)
        if plan.list_size == plan.plays.length(plan.num_clients, plan.assumed_honest) or not plan.keeps_list:
            return fitted
        return fitted.with_settings(list_size=max(plan.list_size, fitted.list_size))
