"""Files that are read with a word on what is wrong, and written whole or not at all."""

import json
import os
import tomllib
from pathlib import Path
from typing import Any, BinaryIO

from lidfl.errors import LidflError

LONGEST_HEADER = 100_000_000
"""Bytes, as safetensors has it."""


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LidflError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise LidflError(f"cannot read {path}: {error}") from None


def tensor_file_notes(file: BinaryIO) -> dict[str, str]:
    """What was written into a safetensors file beside its tensors, which are not read.

    It begins with the length of a header in JSON, and the header; ValueError, KeyError or TypeError if it does not.
    """
    length = int.from_bytes(file.read(8), "little")
    if length > LONGEST_HEADER:
        raise ValueError("its header is too long")
    notes: dict[str, str] = json.loads(file.read(length))["__metadata__"]
    return notes


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file under another name, force it to disk and move it into place."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
