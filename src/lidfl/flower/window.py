"""How many messages are out at a time: more while replies come quickly, few again when they do not.

Every message starts a process at its node, and every process talks to one SuperLink. With too many out at a time
on a busy machine all are late, and Flower starts late ones a second time; with too few, nodes and SuperLink idle.
Nobody knows the right number beforehand, so it is felt for, as TCP does: one more for each quick reply, half as
many after a slow one.

Slow liars can bring it down to what it is at the start, and no further; quick ones can raise it no further than the
multiple below, nor by more than one for each reply.
"""

QUICK = 5.0
"""Seconds within which a reply shows that there is room for more."""
SLOW = 10.0
"""Seconds after which a reply shows that there were too many, well before the 30 that Flower waits."""
MOST = 4
"""How many times the smallest number may be out at most."""


class Window:
    """The number of messages that may be out, never below `least`."""

    def __init__(self, least: int) -> None:
        self.least = least
        self.size = least

    def answered(self, seconds: float) -> None:
        """A message has brought its reply, so many seconds after it was sent."""
        if seconds <= QUICK:
            self.size = min(self.size + 1, MOST * self.least)
        elif seconds > SLOW:
            self.shrink()

    def shrink(self) -> None:
        """A message has brought none in time."""
        self.size = max(self.size // 2, self.least)
