"""The nodes of a fleet as the live page shows them."""

from lidfl.flower.exchange import LATE, Conduct
from lidfl.flower.fleet import Fleet
from lidfl.flower.members import Members
from lidfl.live.watch import MISBEHAVIOUR, NodeView


def view_nodes(fleet: Fleet, members: Members) -> list[NodeView]:
    """How every client's node has behaved so far."""
    views = []
    for client, node in sorted(members.node_of.items()):
        seen = fleet.conduct.get(node, Conduct())
        views.append(
            NodeView(
                client=client,
                state=state_of(seen, online=node in fleet.online, in_debt=node in fleet.patience.in_debt),
                seconds=seen.seconds,
                answered=seen.answered,
                asked=seen.asked,
                sent=seen.sent,
                received=seen.received,
                refused=dict(seen.refused),
                reason=seen.reason,
                credit=fleet.patience.credit(node) / fleet.patience.deadline,
            )
        )
    return views


def state_of(seen: Conduct, *, online: bool, in_debt: bool) -> str:
    """A node's state in a word: what it last did, but misbehaviour is not forgotten."""
    if any(seen.refused[reason] for reason in MISBEHAVIOUR):
        return "misbehaving"
    if not online:
        return "away"
    if seen.reason.startswith(LATE) or in_debt:
        return "late"
    return "failing" if seen.reason else "well"
