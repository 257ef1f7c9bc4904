"""Numbers and lists in words, for captions and titles."""

from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 model, 1,500 models."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def listed(names: Sequence[str]) -> str:
    """Names in a row: a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def ordinal(number: int) -> str:
    """The place that a number names: 2nd, 3rd, 4th, 11th."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in (11, 12, 13) else "th"
    return f"{number}{ending}"


def percent(fraction: float) -> str:
    """A fraction in per cent: 0.6 is 60 %."""
    return f"{100 * fraction:.2g}\u00a0%" if 0 < fraction < 0.995 else f"{100 * fraction:.0f}\u00a0%"


def went(first: float, last: float) -> str:
    """How a value changed from its first to its last."""
    verb = "rose" if last - first > 0.0005 else "fell" if first - last > 0.0005 else "stayed, going"
    return f"{verb} from {first:.3f} to {last:.3f}"


def were(things: Sequence[object]) -> str:
    """The verb that goes with one thing, or with several."""
    return "was" if len(things) == 1 else "were"


def thinned(step: int, noun: str) -> str:
    """A sentence on what a figure leaves out; nothing if it draws everything."""
    return "" if step == 1 else f" Every {ordinal(step)} {noun} is drawn, counted back from the last."
