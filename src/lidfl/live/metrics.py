"""A run's numbers as Prometheus reads them: its text format, version 0.0.4."""

from collections.abc import Iterable, Iterator

from lidfl.live.watch import NodeView, Watch, margin_of

TYPE = "text/plain; version=0.0.4; charset=utf-8"
ROLL = {
    "clients": "Nodes on the roll.",
    "joined": "Nodes that have joined beside those planned with.",
    "left": "Nodes planned with whose keys were removed.",
    "honest": "Nodes that are taken to be honest.",
    "seats": "Models that the list is to have.",
    "quota": "First choices with which a model stays whatever others do.",
    "room": "Malicious nodes that may join before the honest are no quota.",
    "margin_at_worst": "Honest ballots beyond the quota if all who joined are malicious; negative: no guarantee.",
}
STATES = ("well", "late", "failing", "misbehaving", "away")


def metrics(watch: Watch) -> str:
    """All metrics of a run."""
    return "\n".join([*_of_run(watch), *_of_nodes(watch.nodes()), ""])


def _of_run(watch: Watch) -> Iterator[str]:
    yield from _metric("lidfl_rounds", "gauge", "Rounds that are to be played.", [("", watch.rounds)])
    done = len(watch.records)
    yield from _metric("lidfl_rounds_done_total", "counter", "Rounds that are done.", [("", done)])
    counts = [(f'{{reason="{_quoted(reason)}"}}', count) for reason, count in sorted(watch.totals.items())]
    yield from _metric("lidfl_replies_unused_total", "counter", "Replies that were rejected or refused.", counts)
    last = watch.last
    if last is None:
        return
    yield from _metric("lidfl_round_seconds", "gauge", "What the last round took.", [("", last.seconds)])
    ballots = sum(last.votes.values())
    yield from _metric("lidfl_ballots", "gauge", "Ballots of the last round.", [("", ballots)])
    yield from _metric("lidfl_voters", "gauge", "Ballots that were asked for.", [("", watch.voters)])
    margin = margin_of(last)
    if margin is not None:
        yield from _metric("lidfl_margin", "gauge", "Ballots short of removing the favourite.", [("", margin)])
    for name, value in (last.roll or {}).items():
        yield from _metric(f"lidfl_roll_{name}", "gauge", ROLL[name], [("", value)])
    if last.tested:
        yield from _metric("lidfl_accuracy", "gauge", "Accuracy of the best model.", [("", last.best_accuracy)])


def _of_nodes(nodes: list[NodeView]) -> Iterator[str]:
    def each(value: str) -> list[tuple[str, float]]:
        return [(f'{{client="{node.client}"}}', getattr(node, value)) for node in nodes]

    if not nodes:
        return
    yield from _metric("lidfl_node_seconds", "gauge", "What a node's last reply took.", each("seconds"))
    yield from _metric("lidfl_node_asked_total", "counter", "Requests to a node.", each("asked"))
    yield from _metric("lidfl_node_answered_total", "counter", "Replies of a node.", each("answered"))
    yield from _metric("lidfl_node_sent_bytes_total", "counter", "Bytes to a node.", each("sent"))
    yield from _metric("lidfl_node_received_bytes_total", "counter", "Bytes from a node.", each("received"))
    yield from _metric("lidfl_node_credit", "gauge", "The part of its patience that is left.", each("credit"))
    states = [(state, sum(node.state == state for node in nodes)) for state in STATES]
    yield from _metric(
        "lidfl_nodes", "gauge", "Nodes by state.", [(f'{{state="{name}"}}', count) for name, count in states]
    )


def _metric(name: str, kind: str, text: str, values: Iterable[tuple[str, float]]) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
    for labels, value in values:
        yield f"{name}{labels} {value!r}"  # every digit: a counter that is rounded grows by leaps


def _quoted(text: str) -> str:
    """A label's value: what nodes say must not end it."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
