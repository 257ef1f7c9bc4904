"""Files that are read with a word on what is wrong, and written whole or not at all."""

import builtins
import json
import os
import tomllib
import types
from collections import abc
from contextlib import suppress
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, get_args, get_origin, get_type_hints

from lidfl.errors import LidflError

LONGEST_HEADER = 100_000_000
"""Bytes, as safetensors has it."""

LARGEST_INT, LARGEST, LONGEST_TEXT = 10**18, 1e300, 1000
"""Integers, floats and texts of a file are smaller. An attacker's model may well have a mean loss of 1e38."""
MOST_FOLDERS = 20_000
"""So many are looked through for files: more are a home, or a whole disk."""


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LidflError(f"there is no file {path}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise LidflError(f"cannot read {path}: {error}") from None


def parse_json(text: str | bytes) -> Any:
    """JSON as it is meant: without NaN and infinities, and not nested without end; ValueError for anything else."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


@cache
def types_of(record: type) -> dict[str, Any]:
    """The types of a dataclass's fields, looked up once."""
    return get_type_hints(record)


def fits(value: object, hint: Any) -> bool:
    """Whether what was read from a file is of the type that a field is annotated with.

    Numbers are finite and of a size that arithmetic bears, text is such as can be written again.

    >>> fits({"a": (1, 2)}, dict[str, tuple[int, ...]]), fits(float("nan"), float), fits(True, int)
    (True, False, False)
    """
    parts = get_args(hint)
    match get_origin(hint) or hint:
        case types.UnionType:
            return any(fits(value, part) for part in parts)
        case builtins.tuple:
            return isinstance(value, tuple) and all(fits(one, parts[0]) for one in value)
        case builtins.dict | abc.Mapping:
            pairs = value.items() if isinstance(value, dict) else [(None, None)]
            return all(fits(key, parts[0]) and fits(one, parts[1]) for key, one in pairs)
        case builtins.int:
            return type(value) is int and -LARGEST_INT < value < LARGEST_INT
        case builtins.float:
            return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST
        case builtins.str:
            return isinstance(value, str) and len(value) < LONGEST_TEXT and value.isprintable()
        case types.NoneType:
            return value is None
        case plain:
            inner = types_of(plain) if isinstance(plain, type) and is_dataclass(plain) else {}
            return isinstance(value, plain) and all(fits(getattr(value, name), inner[name]) for name in inner)


def tensor_file_notes(file: BinaryIO) -> dict[str, str]:
    """What was written into a safetensors file beside its tensors, which are not read.

    It begins with the length of a header in JSON, and the header; ValueError, KeyError or TypeError if it does not.
    """
    length = int.from_bytes(file.read(8), "little")
    if length > LONGEST_HEADER:
        raise ValueError("its header is too long")
    notes: dict[str, str] = parse_json(file.read(length))["__metadata__"]
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


def toml_value(value: str | int | float | bool) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    # A JSON string is a TOML string, but for DEL, which only TOML wants escaped.
    return (
        json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f") if isinstance(value, str) else repr(value)
    )
