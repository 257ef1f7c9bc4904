"""Notices when no node can train, as when an app's model does not fit its data, and says why.

Liars may fail on purpose, so that a run stops. It stops only when more nodes than may be malicious have failed for
one and the same reason, and nobody has ever succeeded: one of them is honest, and what keeps it back is no lie.
"""

from collections import Counter
from collections.abc import Mapping

from lidfl.errors import LidflError

LENGTH = 200
"""Characters of a reason by which two are told apart."""


class Complaints:
    """Why nodes have failed to train, until one succeeds."""

    def __init__(self, num_clients: int, num_honest: int) -> None:
        self.count(num_clients, num_honest)
        self.reasons: dict[int, str] | None = {}
        """The last reason of each client; None once somebody has succeeded."""

    def count(self, num_clients: int, num_honest: int) -> None:
        """Go by so many clients from now on: nodes may have joined."""
        self.num_clients = num_clients
        self.enough = max(num_clients - num_honest, num_clients // 2) + 1
        """More than may be malicious, and more than half: a single node may have a fault of its own."""

    def hear(self, reasons: Mapping[int, str], *, succeeded: bool) -> None:
        """Take note of a round; raise if it is clear that nobody can train."""
        if succeeded:
            self.reasons = None
        if self.reasons is None:
            return
        self.reasons |= {client: reason[:LENGTH] for client, reason in reasons.items()}
        for reason, count in Counter(self.reasons.values()).most_common(1):
            if count >= self.enough:
                raise LidflError(f"no client can train, {count} of {self.num_clients} for one reason: {reason}")

    def end(self) -> None:
        """Raise if a run ends in which nobody has ever succeeded."""
        if self.reasons is None:
            return
        said = "; ".join(f"client {client}: {reason}" for client, reason in sorted(self.reasons.items())[:3])
        raise LidflError(f"no update was of use in any round; {said or 'no client answered'}")
