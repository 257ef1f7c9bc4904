"""From one decorated function to its name on the command line, in TOML, in `lidfl list` and in the tests.

A *spec* such as `"gm:iterations=3"` names a registered function and its options. Options are the function's
keyword-only parameters. Some parameters are no options but *context*, which the caller knows and the user does
not choose (`rng`, `num_honest`, …): a function that names one of them is given it.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from lidfl.errors import LidflError

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")

ENTRY_POINT_GROUP = "lidfl"
"""A third party's package lists its modules here; importing them registers what they define."""


@dataclass(frozen=True)
class Bound(Generic[R]):
    """A registered function with its options chosen."""

    name: str
    function: Callable[..., R]
    options: dict[str, Any]
    wants: frozenset[str]
    """The context that the function asks for by naming it as a parameter."""

    def __call__(self, *data: object, **context: object) -> R:
        """Call the function with its options and with as much of the context as it asks for."""
        wanted = {name: value for name, value in context.items() if name in self.wants}
        return self.function(*data, **wanted, **self.options)


@dataclass
class Registry(Generic[R]):
    """All functions of one kind, by name; used as a decorator it adds one."""

    kind: str
    context: frozenset[str] = frozenset()
    functions: dict[str, Callable[..., R]] = field(default_factory=dict)

    def __call__(self, function: F) -> F:
        """Register a function under its own name; a trailing underscore keeps Python's names free."""
        name = function.__name__.rstrip("_")
        if not function.__doc__:
            raise TypeError(f"{self.kind} '{name}' needs a docstring: its first line is what users read")
        for parameter in _options(function, self.context).values():
            if _type_name(parameter) not in _PARSERS:
                raise TypeError(
                    f"option '{parameter.name}' of {self.kind} '{name}' must be int, float, str or bool"
                )
        if name in self.functions and self.functions[name].__module__ != function.__module__:
            raise TypeError(
                f"{self.kind} '{name}' exists already, in {self.functions[name].__module__}; rename yours"
            )
        self.functions[name] = function
        return function

    def __iter__(self) -> Iterator[str]:
        load_plugins()
        return iter(sorted(self.functions))

    def __contains__(self, name: object) -> bool:
        if name not in self.functions:
            load_plugins()
        return name in self.functions

    def resolve(self, spec: str) -> Bound[R]:
        """Turn `name`, `name:value` or `name:option=value,option=value` into a bound function."""
        name, _, text = spec.partition(":")
        if name not in self:
            raise LidflError(f"unknown {self.kind} '{name}'; choose from {', '.join(self)}")
        function = self.functions[name]
        known = _options(function, self.context)
        options = self._parse(name, text, known)
        missing = [o.name for o in known.values() if o.default is o.empty and o.name not in options]
        if missing:
            raise LidflError(f"{self.kind} '{name}' needs {missing[0]}: write {name}:{missing[0]}=…")
        parameters = inspect.signature(function).parameters
        return Bound(name, function, options, self.context & parameters.keys())

    def _parse(self, name: str, text: str, known: dict[str, inspect.Parameter]) -> dict[str, Any]:
        """Read `value` (the first option's) or `option=value,…`, converting to the annotated types."""
        if text and not known:
            raise LidflError(f"{self.kind} '{name}' takes no options")
        options: dict[str, Any] = {}
        for part in filter(None, text.split(",")):
            key, equals, value = part.partition("=")
            if not equals:
                key, value = next(iter(known)), part
            if key in options:
                raise LidflError(f"option '{key}' of {self.kind} '{name}' is given twice")
            if key not in known:
                raise LidflError(f"{self.kind} '{name}' has no option '{key}'; it takes {', '.join(known)}")
            options[key] = _convert(value, _type_name(known[key]), f"option '{key}' of {self.kind} '{name}'")
        return options

    def describe(self) -> list[tuple[str, str, str]]:
        """Name, options with their defaults, and one line of help, for every registered function."""
        return [(name, self._options_text(name), self._summary(name)) for name in self]

    def _options_text(self, name: str) -> str:
        options = _options(self.functions[name], self.context).values()
        return ", ".join(o.name if o.default in (o.empty, "") else f"{o.name}={o.default}" for o in options)

    def _summary(self, name: str) -> str:
        return (inspect.getdoc(self.functions[name]) or "").splitlines()[0]


_plugins_loaded = False


def load_plugins() -> None:
    """Import the modules that installed packages list under the entry point group, once."""
    global _plugins_loaded
    if not _plugins_loaded:
        from importlib.metadata import entry_points  # which takes a while to load

        _plugins_loaded = True
        for entry in entry_points(group=ENTRY_POINT_GROUP):
            entry.load()


def _options(function: Callable[..., Any], context: frozenset[str]) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in context}


def _type_name(parameter: inspect.Parameter) -> str:
    """How an option's type is spelled; with postponed annotations that is all there is to see."""
    return str(getattr(parameter.annotation, "__name__", parameter.annotation))


def _parse_bool(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


_PARSERS: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "str": str, "bool": _parse_bool}


def _convert(text: str, to: str, what: str) -> Any:
    try:
        return _PARSERS[to](text)
    except (ValueError, KeyError):
        raise LidflError(f"{what} must be {to}, not '{text}'") from None
