"""Settings as flags: every field of a dataclass of settings becomes a flag that may be left out."""

import re
from collections.abc import Collection
from dataclasses import fields, make_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import tyro

PluginFlag: TypeAlias = Annotated[tuple[Path, ...], tyro.conf.UseAppendAction]
"""`--plugin a.py --plugin b.py`."""


ARGUMENT = re.compile(r"""(?<![\w:,.|(='"-])(?P<name>[a-z_]+)=(?P<value>True|…|"[^"]*")""")
"""How errors and warnings name an argument: `resume=True`, `out=…` or `election="ranked"`."""


def with_flags(command: type[Any], settings: type[Any], *, unset: str = "", but_for: Collection[str] = ()) -> Any:
    """A command with a flag for every setting; `unset` says what a flag that is left out stands for."""
    wanted = [_flag(setting, unset) for setting in fields(settings) if setting.name not in but_for]
    made = make_dataclass(command.__name__, wanted, bases=(command,), kw_only=True)
    made.__doc__ = command.__doc__
    return made


def given_flags(command: object, settings: type[Any]) -> dict[str, Any]:
    """The settings that were given as flags."""
    flags = {setting.name: getattr(command, setting.name, None) for setting in fields(settings)}
    return {name: value for name, value in flags.items() if value not in (None, ())}


def as_flags(text: str) -> str:
    """A message that names Python's arguments, in the words of the command line.

    >>> as_flags('go on with resume=True, or set election="ranked" and out=…')
    'go on with --resume, or set --election ranked and --out'
    """
    return ARGUMENT.sub(_as_flag, text)


def _as_flag(found: re.Match[str]) -> str:
    flag, value = f"--{found['name'].replace('_', '-')}", found["value"]
    if value in ("True", "…"):
        return flag
    return f"{flag} {value if ' ' in value else value.strip(chr(34))}"


def _flag(setting: Any, unset: str) -> tuple[str, Any, Any]:
    """A setting as a flag that may be left out."""
    hint = f"(default: {setting.default})"
    if setting.default is None:
        hint = "" if "(default:" in setting.metadata["help"] else setting.metadata["unset"] or unset
    argument = tyro.conf.arg(help=setting.metadata["help"], help_behavior_hint=hint)
    return setting.name, Annotated[setting.type | None, argument, tyro.conf.DisallowNone], None
