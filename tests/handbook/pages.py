"""Types what a page of Markdown shows, in the order printed.

| block | what is done with it |
|---|---|
| `sh` | every line is typed: `lidfl …` in this process, which is faster, `python FILE` in the same way |
| `python` | executed; with a title, as in `python title="my.py"`, written to that file instead |
| `toml title="…"` | written to that file |
| all others | only shown: `text` is output, `shell` needs a network, other hosts or long |
"""

import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.command import lidfl_here

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', flags=re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A block of code on a page."""

    language: str
    title: str
    content: str


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page."""
    return (Block(*found) for found in BLOCK.findall(page.read_text(encoding="utf-8")))


def follow(page: Path) -> None:
    """Do what a page says, in the working directory; its Python shares one namespace."""
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks(page):
        if block.title:
            Path(block.title).parent.mkdir(parents=True, exist_ok=True)
            Path(block.title).write_text(block.content)
        elif block.language == "python":
            exec(block.content, names)
        elif block.language == "sh":
            for line in filter(None, block.content.splitlines()):
                type_line(line)


def type_line(line: str) -> None:
    """Type one line of a shell."""
    program, *words = shlex.split(line, comments=True)
    if program == "lidfl":
        assert lidfl_here(*words) == 0, line
    else:
        assert program == "python", f"no way to type {line}"
        sys.path.insert(0, "")
        try:
            runpy.run_path(words[0], run_name="__main__")
        finally:
            sys.path.remove("")
