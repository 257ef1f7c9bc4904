"""Files that are read with a word on what is wrong, and written whole or not at all."""

import os
import tomllib
from pathlib import Path
from typing import Any

from lidfl.errors import LidflError


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LidflError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise LidflError(f"cannot read {path}: {error}") from None


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file under another name, force it to disk and move it into place."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
