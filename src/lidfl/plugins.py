"""Files of a user's own: executed once, and known by their content.

A run records them as `rules.py@digest; more.py@digest`, so that it can say when one has changed since.
"""

import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from types import ModuleType

from lidfl.errors import LidflError

SEPARATOR = ";"
RECORDED = re.compile(r"(?P<path>.+)@(?P<digest>[0-9a-f]{16})")


@dataclass(frozen=True)
class Plugin:
    """A file, and the digest of what it held when it was executed."""

    path: str
    digest: str
    module: ModuleType


_loaded: dict[Path, Plugin] = {}


def digest_of(content: bytes) -> str:
    """What a content is known by."""
    return blake2b(content, digest_size=8).hexdigest()


def load_recorded(given: str | Path | Iterable[str | Path]) -> str:
    """Execute the files that are named, each once, and say how a run records them.

    A file that is named with a digest must still hold what it held.
    """
    found: dict[Path, Plugin] = {}
    for plugin in map(_load_named, _names(given)):
        found.setdefault(_place(plugin.path), plugin)
    return f"{SEPARATOR} ".join(f"{plugin.path}@{plugin.digest}" for plugin in found.values())


def load_module(path: str) -> ModuleType:
    """The module that a file makes; of a file that is loaded already, as it was then."""
    known = _loaded.get(_place(path))
    return known.module if known else _load(path, None).module


def what_changed(before: str, now: str) -> str:
    """In what two records differ, wherever the files are; empty if they are of the same content."""
    then, today = ({digest: path for path, digest in map(_parts, _names(record))} for record in (before, now))
    for digest, path in then.items():
        if digest not in today:
            return f"plugin {path} has changed" if path in today.values() else f"plugin {path} is missing"
    return f"plugin {today[more[0]]} is new" if (more := [*(today.keys() - then.keys())]) else ""


def absolute(record: str) -> str:
    """The same record for processes with another working directory."""
    found = map(_parts, _names(record))
    return f"{SEPARATOR} ".join(f"{_place(path)}@{digest}" for path, digest in found)


def _names(given: str | Path | Iterable[str | Path]) -> Iterator[str]:
    """Each file, with its digest if it has one."""
    for part in [given] if isinstance(given, str | Path) else given:
        yield from filter(None, (name.strip() for name in str(part).split(SEPARATOR)))


def _parts(name: str) -> tuple[str, str | None]:
    found = RECORDED.fullmatch(name)
    return (found["path"], found["digest"]) if found else (name, None)


def _load_named(name: str) -> Plugin:
    return _load(*_parts(name))


def _place(path: str) -> Path:
    try:
        return Path(path).expanduser().resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise LidflError(f"plugin '{path}' is no file: {error}") from None


def _load(path: str, wanted: str | None) -> Plugin:
    """Execute a file, unless it has been as it is now."""
    place = _place(path)
    known = _loaded.get(place)
    if known and wanted == known.digest:
        return replace(known, path=path)  # whatever has become of the file meanwhile
    content = _read(path, place, wanted)
    digest = digest_of(content)
    if wanted not in (None, digest):
        raise LidflError(
            f'plugin {path} has changed since it was recorded: bring the old file back, or set plugin="{path}" '
            "to start another run with the new one"
        )
    if known is None or known.digest != digest:
        _loaded[place] = Plugin(path, digest, _execute(content, path, place))
    return replace(_loaded[place], path=path)


def _read(path: str, place: Path, wanted: str | None) -> bytes:
    try:
        if place.exists() and not place.is_file():
            raise LidflError(f"cannot read plugin {path}: it is no file; name a Python file")
        return place.read_bytes()
    except FileNotFoundError:
        fix = f"the run was made with it, digest {wanted}: bring it back" if wanted else "name a Python file"
        raise LidflError(f"there is no plugin {path} here; {fix}") from None
    except (OSError, ValueError) as error:
        raise LidflError(f"cannot read plugin {path}: {error}; name a Python file") from None


def _execute(content: bytes, path: str, place: Path) -> ModuleType:
    """The module that a file makes; what goes wrong in it is told in one line."""
    name = f"lidfl_plugin_{place.stem}_{digest_of(str(place).encode())[:6]}"
    module = ModuleType(name)
    module.__file__ = str(place)
    sys.modules[name] = module  # where pickles and dataclasses look
    try:
        exec(compile(content, str(place), "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise LidflError(f"plugin {path}{_line_of(error, place)}: {in_a_line(error)}") from error
    return module


def _line_of(error: BaseException, place: Path) -> str:
    if isinstance(error, SyntaxError):
        return f", line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(place)]
    return f", line {lines[-1]}" if lines else ""


def in_a_line(error: BaseException) -> str:
    """What a user's own code has to say, in one line."""
    text = str(error).strip() or "no reason given"
    told = text.splitlines()[0]
    return told if isinstance(error, LidflError) else f"{type(error).__name__}: {told}"
