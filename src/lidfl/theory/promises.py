"""A promise: a number that the guarantee gives, and what it means."""

from dataclasses import dataclass

SIGNED = ("margin", "sybil_margin")
"""Promises that say yes or no by their sign: the quota holds, or it does not."""


@dataclass(frozen=True)
class Promise:
    """A number that the guarantee gives, and the sentence that says what it means."""

    key: str
    name: str
    value: float | None
    sentence: str

    @property
    def text(self) -> str:
        """The number as a person reads it."""
        if self.key in SIGNED and self.value is not None:
            return f"{self.value:+,}"
        if "failure" in self.key and self.value == 0:  # beyond what a float can hold
            return "< 1e-300"
        return as_text(self.value)


def as_text(value: float | None) -> str:
    """A count in full, anything else to three digits; a probability just below one is not rounded up to one.

    >>> as_text(1_000_000), as_text(0.99999), as_text(0.25), as_text(1e-9), as_text(None)
    ('1,000,000', '1 − 1.0e-05', '0.25', '1.0e-09', '–')
    """
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    if 0.9995 < value < 1:
        return f"1 − {1 - value:.1e}"
    return f"{value:.3g}" if value == 0 or 1e-3 <= value < 1e4 else f"{value:.1e}"
