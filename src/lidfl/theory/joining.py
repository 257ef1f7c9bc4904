"""What becomes of the guarantee when malicious clients join: honest ones do not become more by it."""

from collections.abc import Iterator

from lidfl.theory.promises import Promise
from lidfl.theory.question import Question
from lidfl.theory.votes import Electorate


def joining_promises(question: Question) -> Iterator[Promise]:
    """How many may join, and what a wave of them does."""
    electorate = question.electorate
    m, k, q, room = electorate.num_clients, electorate.num_honest, electorate.list_size, electorate.room
    told = f"So many malicious clients may join, k(q + 1) − 1 − m, and {k:,} honest ones are still a quota."
    gone = f"The quota does not hold as it is: of {m:,} clients {-room:,} are too many."
    yield Promise("sybil_room", "may join", max(room, 0), told if room >= 0 else gone)
    wave = question.sybils or m
    after = electorate.joined_by(wave)
    then = f"If {wave:,} malicious clients join, the quota is {after.quota():,}, and {k:,} are honest:"
    yield Promise("sybil_margin", "… after a wave", after.margin, f"{then} {_kept(after)}")
    needed = Electorate.smallest(after.num_clients, k).list_size
    told = f"The list that would hold with them, ⌊{after.num_clients:,}/{k:,}⌋; with uniform parents progress is"
    yield Promise("sybil_list", "… list needed", needed, f"{told} up to {needed / q:.3g} times slower with it.")


def _kept(electorate: Electorate) -> str:
    """Whether the guarantee holds."""
    return "the guarantee holds." if electorate.margin >= 0 else "the others can vote out every good model."
