"""Settings as flags: every field of a dataclass of settings becomes a flag that may be left out."""

from collections.abc import Collection
from dataclasses import fields, make_dataclass
from typing import Annotated, Any

import tyro


def with_flags(command: type[Any], settings: type[Any], *, unset: str = "", but_for: Collection[str] = ()) -> Any:
    """A command with a flag for every setting; `unset` says what a flag that is left out stands for."""
    wanted = [_flag(setting, unset) for setting in fields(settings) if setting.name not in but_for]
    made = make_dataclass(command.__name__, wanted, bases=(command,), kw_only=True)
    made.__doc__ = command.__doc__
    return made


def given_flags(command: object, settings: type[Any]) -> dict[str, Any]:
    """The settings that were given as flags."""
    flags = {setting.name: getattr(command, setting.name, None) for setting in fields(settings)}
    return {name: value for name, value in flags.items() if value is not None}


def _flag(setting: Any, unset: str) -> tuple[str, Any, Any]:
    """A setting as a flag that may be left out."""
    hint = f"(default: {setting.default})"
    if setting.default is None:
        hint = "" if "(default:" in setting.metadata["help"] else setting.metadata["unset"] or unset
    argument = tyro.conf.arg(help=setting.metadata["help"], help_behavior_hint=hint)
    return setting.name, Annotated[setting.type | None, argument, tyro.conf.DisallowNone], None
