"""Where the time goes."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter


class Stopwatch:
    """Adds up seconds by what they went into."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Count the time until the context ends under a phase."""
        began = perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] += perf_counter() - began
