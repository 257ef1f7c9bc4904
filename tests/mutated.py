"""Files as accidents and enemies leave them: whole ones, changed in a place or two, the same every time."""

from collections.abc import Iterator
from pathlib import Path

from numpy.random import Generator, default_rng

NASTY = [
    b"",
    b"0",
    b"-1",
    b"9" * 401,
    b"1e999",
    b"NaN",
    b"Infinity",
    b"null",
    b"true",
    b"[]",
    b"{}",
    b'""',
    b'"\\ud800"',
]
NASTY += [
    b"\0",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"99999999999999999999",
    b"-0.5",
    b"(True, 8, 8)",
    b"x" * 5000,
    b"[" * 3000,
]
"""What stands where something else was."""


def mutations(content: bytes, count: int, seed: int = 0) -> Iterator[bytes]:
    """So many changed copies of a file."""
    rng = default_rng(seed)
    ways = [flipped, cut, doubled, without, replaced, replaced]
    for _ in range(count):
        yield ways[int(rng.integers(len(ways)))](content, rng)


def rewrite(path: Path, content: bytes) -> None:
    """Put other bytes into a file that is there; to empty it first would make the file system wait for the disk."""
    with path.open("r+b") as file:
        file.write(content)
        file.truncate()


def place(content: bytes, rng: Generator) -> int:
    """Somewhere in a file; half the time near its beginning, where headers are."""
    return int(rng.integers(max(1, min(len(content), 300) if rng.integers(2) else len(content))))


def flipped(content: bytes, rng: Generator) -> bytes:
    """A few bytes are others."""
    changed = bytearray(content)
    for _ in range(int(rng.integers(1, 5))):
        changed[place(content, rng)] = int(rng.integers(256))
    return bytes(changed)


def cut(content: bytes, rng: Generator) -> bytes:
    """The end is missing."""
    return content[: place(content, rng)]


def doubled(content: bytes, rng: Generator) -> bytes:
    """A piece is there twice."""
    start, length = place(content, rng), int(rng.integers(1, 200))
    return content[: start + length] + content[start:]


def without(content: bytes, rng: Generator) -> bytes:
    """A piece is missing."""
    start = place(content, rng)
    return content[:start] + content[start + int(rng.integers(1, 50)) :]


def replaced(content: bytes, rng: Generator) -> bytes:
    """A word or a number is another."""
    start = place(content, rng)
    while start < len(content) and not content[start : start + 1].isalnum():
        start += 1
    end = start
    while end < len(content) and content[end : end + 1].isalnum():
        end += 1
    return content[:start] + NASTY[int(rng.integers(len(NASTY)))] + content[end:]
