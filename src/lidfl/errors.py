"""The one kind of error that is the user's to mend, and how it is told."""

LONGEST_WORD = 200
"""Characters: what a user typed is repeated, but not five thousand letters of it."""


class LidflError(Exception):
    """A mistake in what the user asked for; the message is one line and names the fix."""


def one_line(error: object) -> str:
    """A message as one line that every terminal can show, whatever was typed or read."""
    words = [word if len(word) <= LONGEST_WORD else f"{word[:LONGEST_WORD]}…" for word in str(error).split()]
    return "".join(letter if letter.isprintable() else "�" for letter in " ".join(words))


def told(error: OSError) -> str:
    """What went wrong with a file, and with which.

    >>> told(FileNotFoundError(2, "No such file or directory", "a.toml"))
    'a.toml: No such file or directory'
    """
    reason = error.strerror or str(error) or type(error).__name__
    return reason if error.filename is None else f"{error.filename}: {reason}"
