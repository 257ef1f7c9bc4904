"""Files that are read with a word on what is wrong, and written whole or not at all."""

import json
import os
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from lidfl.errors import LidflError

LONGEST_HEADER = 100_000_000
"""Bytes, as safetensors has it."""

MOST_FOLDERS = 20_000
"""So many are looked through for files: more are a home, or a whole disk."""


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
    """Write a file under another name, force it to disk and move it into place; if that fails, nothing is left.

    What is no file is not replaced: to move one to /dev/null would be the end of that.
    """
    if path.exists() and not path.is_file():
        raise LidflError(f"{path} is not a file, and is left alone; name a file to be written")
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def find_files(folder: Path, name: str) -> list[Path]:
    """All files of a name below a folder, in order; hidden folders are passed by, and there is an end to it."""
    found = []
    for number, (place, folders, files) in enumerate(os.walk(folder)):
        if number == MOST_FOLDERS:
            raise LidflError(f"{folder} has over {MOST_FOLDERS:,} folders; name the one that holds the runs")
        folders[:] = sorted(inner for inner in folders if not inner.startswith("."))
        found += [Path(place, name)] if name in files else []
    return sorted(found)
