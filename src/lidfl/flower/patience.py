"""How long nodes are waited for: a slow node may cost the others a little, and not again and again.

With an honest minority nobody can tell slow liars from honest nodes beside quick liars, so no single number of
seconds is right. What can be bounded is for how long everybody waits for the same node.

- For `base` seconds everybody is waited for, and it costs nothing: at least `patience`, and at least twice as long
  as the quickest nodes last took for a request of this kind, as many nodes as are taken to be honest. Slow liars
  cannot make it longer. Quick ones could make it shorter, but not shorter than `patience`: set that to what an
  honest node needs. Before anybody has answered a request of this kind, it is the deadline.
- Beyond that, and while only slow nodes are out, each of them uses up its credit, one deadline at the start. It
  comes back slowly: so slowly that all nodes together can make rounds no more than half as long again.
- A node that has used it up is in debt until half of it has come back. It is asked like all others, but waited for
  only a little longer than they are, and what it takes counts for nobody. What a node takes never counts for
  itself: one that is drawn before all others would set its own pace. Nobody is ever waited for longer than the
  deadline.
"""

from collections.abc import Iterable

from lidfl.settings.experiment import Experiment

RETURN = 0.5
"""Which part of the time that passes comes back as credit, all nodes together."""
LEEWAY = 1.25
"""By what factor a node in debt is waited for longer than the others."""


def share_of(experiment: Experiment) -> float:
    """Which part of the nodes sets the pace; who takes all to be honest would let the slowest set it."""
    return min(experiment.assumed_honest / experiment.num_clients, 0.5)


class Patience:
    """The credit of every node."""

    def __init__(self, patience: float, deadline: float, share: float) -> None:
        self.patience = min(patience, deadline)
        self.deadline = deadline
        self.share = share
        """Which part of the nodes is taken to be honest."""
        self.used: dict[int, float] = {}
        """The seconds of its credit that each node has used up."""
        self.in_debt: set[int] = set()
        self.times: dict[str, dict[int, float]] = {}
        """By kind of request, how long each node last took to answer."""

    def enough(self, nodes: int) -> int:
        """How many of so many nodes are taken to be honest."""
        return max(1, int(self.share * nodes + 1e-9))

    def took(self, kind: str, node: int, seconds: float) -> None:
        """Remember how long a node took."""
        self.times.setdefault(kind, {})[node] = seconds

    def known(self, kind: str, but: int | None = None) -> list[float]:
        """What nodes last took for such a request, the quickest first, without one and those in debt."""
        times = self.times.get(kind, {}).items()
        return sorted(took for node, took in times if node != but and node not in self.in_debt)

    def base(self, kind: str) -> float:
        """For how long everybody is waited for, as far as it is known by now; before any answer, the deadline."""
        return self._pace(self.known(kind), self.deadline)

    def usual(self, kind: str, node: int | None = None) -> float:
        """What a node may take that is not slow, by what others took; the patience if that is not known."""
        return self._pace(self.known(kind, but=node), self.patience)

    def _pace(self, times: list[float], unknown: float) -> float:
        """Twice what the quickest took, as many as are taken to be honest."""
        if not times:
            return unknown
        return min(max(self.patience, 2 * times[self.enough(len(times)) - 1]), self.deadline)

    def credit(self, node: int) -> float:
        """For how many more seconds others will wait for a node."""
        return self.deadline - self.used.get(node, 0.0)

    def in_order(self, nodes: Iterable[int]) -> list[int]:
        """Nodes with the most credit first, so that slow ones are asked when all others have been."""
        return sorted(nodes, key=lambda node: (-self.credit(node), node))

    def charge(self, node: int, seconds: float) -> None:
        """Count the seconds for which others have waited for a node."""
        if seconds > 0:
            self.used[node] = min(self.used.get(node, 0.0) + seconds, self.deadline)
            if self.credit(node) <= 0:
                self.in_debt.add(node)

    def passed(self, seconds: float, nodes: int) -> None:
        """Give back some credit for time that has passed, in a federation of so many nodes."""
        share = RETURN * seconds / max(nodes, 1)
        self.used = {node: used - share for node, used in self.used.items() if used > share}
        self.in_debt = {node for node in self.in_debt if self.credit(node) < self.deadline / 2}
