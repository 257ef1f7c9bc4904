"""One request to some nodes, from the first message sent to the last reply waited for.

- Only so many messages are out at a time (`window`): each starts a process at its node, and Flower starts another
  one if the first has not reported in 30 s. A node that takes long gives its place to the next, and is still heard.
- Each message has a deadline, and lives no longer: a node that comes back does not work on stale requests. One
  deadline covers all that may happen to a request: an answer in another's name, a second try, a slow upload.
- Each message carries a secret that only its node is sent, and only a reply that echoes it counts. Flower checks
  who hands in a reply, but not that it is the node that was asked. It takes one reply to a message, so a node in
  whose name another has answered is asked anew; and no node's reply is counted twice.
- Each message is signed, so that a node can tell it from one that another node made up (`signing`).
- What comes back is opened in `opening`; how long it is waited for says `patience`.
"""

import logging
import secrets
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import TYPE_CHECKING, TypeAlias

import httpx
from flwr.app import Message, RecordDict
from flwr.common.constant import ErrorCode

from lidfl.flower.codec import Unreadable, in_envelope, secret_of, size_of
from lidfl.flower.opening import Parcel, Refused, announced
from lidfl.flower.patience import LEEWAY

if TYPE_CHECKING:
    from lidfl.flower.fleet import Fleet

log = logging.getLogger(__name__)

FORGED, LATE, FAILED = "forged", "late", "failed"
TRIES = 2
"""How often a node is asked in whose name somebody else has answered."""
LATE_LOOK = 1.0
"""Seconds between two looks into late replies: they are in no hurry, and each look costs a request."""
NodeId: TypeAlias = int
TakeLate: TypeAlias = Callable[[NodeId, RecordDict], None]
"""What is done with a reply that comes when it is not waited for any more."""


@dataclass
class Conduct:
    """How a node has behaved so far."""

    asked: int = 0
    answered: int = 0
    seconds: float = 0.0
    """What its last reply took."""
    sent: int = 0
    received: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    reason: str = ""
    """Why the last message brought no reply, in its own words or ours; empty if it did."""


@dataclass(frozen=True)
class Question:
    """What one node is asked, and what may come back."""

    content: RecordDict
    kind: str
    group: str
    most_bytes: int


@dataclass
class Sent:
    """A message that is out."""

    node: NodeId
    secret: str
    at: float
    parcel: Parcel | None = None


@dataclass
class Overdue:
    """A message whose reply is not waited for any more, but may come."""

    sent: Sent
    most_bytes: int
    until: float
    take: TakeLate | None
    """None if a late reply is of no use."""


class Exchange:
    """One request to some nodes, from the first message sent to the last reply waited for."""

    def __init__(
        self,
        fleet: "Fleet",
        questions: Mapping[NodeId, Question],
        kind: str,
        deadline: float,
        late: TakeLate | None = None,
    ) -> None:
        self.fleet = fleet
        self.questions = questions
        self.kind = kind
        self.deadline = deadline
        self.late = late
        self.debtors = fleet.patience.in_debt.intersection(questions)
        if len(questions) > 1 and len(questions) - len(self.debtors) < fleet.patience.enough(len(questions)):
            self.debtors = set()  # without them there would not be enough
        self.began = self.prompt_until = self.busy_until = monotonic()
        self.waiting = deque(fleet.patience.in_order(questions))
        self.tries: Counter[NodeId] = Counter()
        self.first: dict[NodeId, float] = {}
        """When each node was first asked."""
        self.out: dict[str, Sent] = {}

    def replies(self) -> Iterator[tuple[NodeId, RecordDict]]:
        """The replies as they come in, until there is nobody left to wait for."""
        while self.waiting or self.out:
            self._send()
            self._look()
            self._open_late(monotonic())
            for name, sent in list(self.out.items()):
                content = self._open(name, sent)
                if content is not None:
                    yield sent.node, content
            self._give_up(monotonic())
            if self.waiting or self.out:
                sleep(self.fleet.limits.poll)

    # Sending

    def _send(self) -> None:
        """Send to as many as there are places for; who takes long has none any more."""
        now = monotonic()
        held = self.fleet.patience.usual(self.kind)
        places = self.fleet.window.size - sum(now - sent.at < held for sent in self.out.values())
        for _ in range(min(places, len(self.waiting))):
            node = self.waiting.popleft()
            try:
                self._send_to(node)
            except Refused as refusal:
                self.fleet.refuse(node, refusal)

    def _send_to(self, node: NodeId) -> None:
        question, secret, now = self.questions[node], secrets.token_hex(16), monotonic()
        left = self.first.setdefault(node, now) + self.deadline - now
        if left <= 0:
            raise Refused(LATE, "no time is left to ask again")
        records = in_envelope(question.content, secret, left)
        message = Message(records, node, question.kind, ttl=left)
        self.fleet.signer.sign(message, question.group)
        try:
            name = next(iter(self.fleet.grid.push_messages([message])), None)
        except httpx.HTTPStatusError as error:  # the SuperLink does not take this message, and may take others
            raise Refused("not sent", str(error)) from None
        if not name:
            raise Refused("not sent")
        self.tries[node] += 1
        self.out[name] = Sent(node, secret, now)
        self.fleet.conduct[node].sent += size_of(records)

    # Receiving

    def _look(self) -> None:
        """See which replies are there."""
        names = [name for name, sent in self.out.items() if sent.parcel is None]
        if not names:
            return
        overdue = {name: left.sent for name, left in self.fleet.overdue.items() if left.sent.parcel is None}
        for group in [[name] for name in names] if self.fleet.one_by_one else [names]:
            try:
                for parcel in announced(self.fleet.grid, [*group, *overdue]):
                    (self.out | overdue)[parcel.reply_to].parcel = parcel
            except Exception as error:
                self._not_seen(group, error)

    def _not_seen(self, names: list[str], error: Exception) -> None:
        """A look for many has failed: somebody spoils it, so from now on each is looked for by itself."""
        if isinstance(error, httpx.TransportError) or type(error).__name__ == "RunNotRunningException":
            raise error
        log.warning("a look for %d replies failed: %s: %s", len(names), type(error).__name__, error)
        self.fleet.one_by_one = True
        if len(names) == 1:
            self.fleet.refuse(self.out.pop(names[0]).node, Refused("garbage", str(error)))

    def _open_late(self, now: float) -> None:
        """Hand on late replies that are of use; the others would lie on the SuperLink's disk until the run ends.

        Of a node only the latest: one that announces reply after reply and uploads none must not cost a request
        each, again and again.
        """
        if now - self.fleet.late_look < LATE_LOOK:
            return
        self.fleet.late_look = now
        announced = {name: left for name, left in self.fleet.overdue.items() if left.sent.parcel is not None}
        latest = {left.sent.node: name for name, left in announced.items()}
        for name, left in announced.items():
            if self._settled(left, now, of_use=latest[left.sent.node] == name):
                del self.fleet.overdue[name]

    def _settled(self, left: Overdue, now: float, *, of_use: bool) -> bool:
        """Whether there is nothing left to do about a late reply."""
        parcel = left.sent.parcel
        assert parcel is not None
        if left.take is None or now > left.until or not of_use:
            parcel.discard()
            return True
        try:
            message = parcel.unpack(left.most_bytes)
            if message is None:
                return False
            left.take(left.sent.node, authentic(message, left.sent.secret))
        except Refused as refusal:
            log.warning("node %d: a late reply is of no use: %s", left.sent.node, refusal)
        return True

    def _open(self, name: str, sent: Sent) -> RecordDict | None:
        """The content of a reply that has arrived in full; one in another's name is asked for anew."""
        if sent.parcel is None:
            return None
        try:
            message = sent.parcel.unpack(self.questions[sent.node].most_bytes)
            if message is None:
                return None
            content = authentic(message, sent.secret)
        except Refused as refusal:
            del self.out[name]
            self.fleet.refuse(sent.node, refusal)
            if refusal.reason == FORGED and self.tries[sent.node] < TRIES:
                self.waiting.appendleft(sent.node)
            else:
                self._charge(sent.node, monotonic())
            return None
        del self.out[name]
        conduct, now = self.fleet.conduct[sent.node], monotonic()
        conduct.answered += 1
        conduct.reason = ""
        conduct.seconds = now - self.first[sent.node]
        conduct.received += size_of(content)
        self.fleet.window.answered(now - sent.at)
        self.fleet.patience.took(self.kind, sent.node, conduct.seconds)
        self._charge(sent.node, now)
        return content

    # Waiting

    def _give_up(self, now: float) -> None:
        """Stop waiting for those whose time is up, or whose credit is."""
        base = self.fleet.patience.base(self.kind)
        reliable = [sent.node for sent in self.out.values() if sent.node not in self.debtors]
        to_come = any(node not in self.debtors for node in self.waiting)
        if to_come or any(now - self.first[node] <= min(base, self._usual(node)) for node in reliable):
            self.prompt_until = now
        if to_come or reliable:
            self.busy_until = now
        for name, sent in list(self.out.items()):
            waited = now - self.first[sent.node]
            if waited > min(self._limit(sent.node, base), self.deadline):
                del self.out[name]
                self.fleet.window.shrink()
                most = self.questions[sent.node].most_bytes
                self.fleet.give_up(name, Overdue(sent, most, self.first[sent.node] + 2 * self.deadline, self.late))
                self._charge(sent.node, now)
                self.fleet.refuse(sent.node, Refused(LATE, f"no answer within {waited:.0f} s"))

    def _limit(self, node: NodeId, base: float) -> float:
        """For how long, since it was asked, a node is waited for as things stand."""
        if node not in self.debtors:
            since = max(self.first[node] + base, self.prompt_until)
            return since + self.fleet.patience.credit(node) - self.first[node]
        if self.busy_until == self.began:  # none but debtors were asked
            return self._usual(node)
        return max(self.began + LEEWAY * (self.busy_until - self.began), self.busy_until) - self.first[node]

    def _charge(self, node: NodeId, now: float) -> None:
        """Let a slow node pay for the time in which none but slow ones were out."""
        self.fleet.patience.charge(node, now - max(self.first[node] + self._usual(node), self.prompt_until))

    def _usual(self, node: NodeId) -> float:
        """What a node may take for this request that is not slow."""
        return self.fleet.patience.usual(self.kind, node)


def authentic(message: Message, secret: str) -> RecordDict:
    """The content of a reply that comes from the node that was asked."""
    if message.has_error():
        # Flower says so itself of a message that has expired.
        expired = message.error.code == ErrorCode.MESSAGE_UNAVAILABLE
        raise Refused(LATE if expired else FAILED, message.error.reason or "")
    try:
        echoed = secret_of(message)
    except Unreadable:
        echoed = ""
    if not secrets.compare_digest(echoed.encode(), secret.encode()):
        raise Refused(FORGED, "the reply does not carry the request's secret")
    return message.content
