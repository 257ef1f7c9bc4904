"""From one decorated function to its name on the command line, in TOML, in `lidfl list` and in the tests.

A *spec* such as `"gm:iterations=3"` names a registered function and its options. Options are the function's
keyword-only parameters. Some parameters are no options but *context*, which the caller knows and the user does
not choose (`rng`, `num_honest`, …): a function that names one of them is given it.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf, isfinite
from types import FunctionType
from typing import Any, Generic, TypeAlias, TypeVar

from lidfl.errors import LidflError
from lidfl.plugins import in_a_line

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")

ENTRY_POINT_GROUP = "lidfl"
"""A third party's package lists its modules here; importing them registers what they define."""

OBJECT = re.compile(r"[^:@]+@[0-9a-f]{16}")
"""The name of an object that was handed over in Python: what it is called, and the digest of its content."""

_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


Range: TypeAlias = tuple[float, float]
"""The least and the most that an option may be."""
UNBOUNDED: Range = (-inf, inf)


def within(**ranges: Range) -> Callable[[F], F]:
    """Say from where to where options of a function go, ends included; what lies beyond is refused by name.

    >>> @within(radius=(0, inf))
    ... def clip(updates, *, radius: float = 1.0): ...
    """

    def marked(function: F) -> F:
        function.__dict__["ranges"] = ranges
        return function

    return marked


def ranges_of(function: Callable[..., Any]) -> Mapping[str, Range]:
    """From where to where the options of a function go."""
    found: Mapping[str, Range] = getattr(function, "ranges", {})
    return found


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
    given: tuple[str, ...] | None = None
    """What every function is given first, in order; None if they may take what they like."""
    objects: dict[str, Callable[..., R]] = field(default_factory=dict)
    """What was handed over in Python, by names made from its content; it is found, and never listed."""

    def __call__(self, function: F) -> F:
        """Register a function under its own name; a trailing underscore keeps Python's names free."""
        name = function.__name__.rstrip("_")
        if not function.__doc__:
            raise TypeError(f"{self.kind} '{name}' needs a docstring: its first line is what users read")
        if name in self.functions and self.functions[name].__module__ != function.__module__:
            raise TypeError(
                f"{self.kind} '{name}' exists already, in {self.functions[name].__module__}; rename yours"
            )
        self.check_signature(name, function)
        self.functions[name] = function
        return function

    def check_signature(self, name: str, function: Callable[..., Any]) -> None:
        """Refuse a function that could not be called, before anybody tries to."""
        what = f"{self.kind} '{name}'"
        for parameter in _options(function, self.context).values():
            if _type_name(parameter) not in _PARSERS:
                raise TypeError(f"option '{parameter.name}' of {what} must be int, float, str or bool")
        for option in ranges_of(function).keys() - _options(function, self.context).keys():
            raise TypeError(f"{what} has a range for '{option}', which is no option of it")
        if self.given is None:
            return
        places = [p for p in inspect.signature(function).parameters.values() if p.kind in _BY_PLACE]
        first, others = places[: len(self.given)], places[len(self.given) :]
        if len(first) < len(self.given) or any(p.name in self.context for p in first):
            raise TypeError(f"{what} must take {', '.join(self.given)} first")
        for parameter in others:
            if parameter.name not in self.context or parameter.kind is parameter.POSITIONAL_ONLY:
                known = f"it may name {', '.join(sorted(self.context))}; " if self.context else ""
                raise TypeError(
                    f"{what} names '{parameter.name}', which it is not given: {known}an option comes after a *"
                )

    def __iter__(self) -> Iterator[str]:
        load_plugins()
        return iter(sorted(self.functions))

    def __contains__(self, name: object) -> bool:
        if name in self.objects:
            return True
        if name not in self.functions:
            load_plugins()
        return name in self.functions

    def resolve(self, spec: str) -> Bound[R]:
        """Turn `name`, `name:value` or `name:option=value,option=value` into a bound function."""
        name, _, text = spec.partition(":")
        if name not in self:
            raise LidflError(self._unknown(name))
        function = self.objects.get(name) or self.functions[name]
        return self.bind(name, function, text, _options(function, self.context))

    def _unknown(self, name: str) -> str:
        if OBJECT.fullmatch(name):
            return (
                f"{self.kind} '{name}' is no name but an object that a run was given in Python; go on from there, "
                f"with Experiment({self.kind}=…) of the same object"
            )
        return f"unknown {self.kind} '{name}'; choose from {', '.join(self)}"

    def bind(
        self, name: str, function: Callable[..., R], text: str, known: dict[str, inspect.Parameter]
    ) -> Bound[R]:
        """A function with the options that a text chooses of those that are known."""
        options = self._parse(name, text, known, ranges_of(function))
        missing = [o.name for o in known.values() if o.default is o.empty and o.name not in options]
        if missing:
            raise LidflError(f"{self.kind} '{name}' needs {missing[0]}: write {name}:{missing[0]}=…")
        parameters = _parameters(function)
        return Bound(name, function, options, self.context & parameters.keys())

    def _parse(
        self, name: str, text: str, known: dict[str, inspect.Parameter], ranges: Mapping[str, Range]
    ) -> dict[str, Any]:
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
            what = f"option '{key}' of {self.kind} '{name}'"
            options[key] = _convert(value, _type_name(known[key]), what)
            _refuse_beyond(options[key], ranges.get(key, UNBOUNDED), what)
        return options

    def defaults(self, name: str) -> dict[str, Any]:
        """The options of a function that have defaults, with these."""
        options = _options(self.functions[name], self.context).values()
        return {option.name: option.default for option in options if option.default is not option.empty}

    def describe(self) -> list[tuple[str, str, str]]:
        """Name, options with their defaults, and one line of help, for every registered function."""
        return [(name, self._options_text(name), self._summary(name)) for name in self]

    def options(self, name: str) -> dict[str, Any]:
        """The options of a registered function with their defaults; None where one has to be given."""
        options = _options(self.functions[name], self.context).values()
        return {option.name: None if option.default is option.empty else option.default for option in options}

    def _options_text(self, name: str) -> str:
        options = _options(self.functions[name], self.context).values()
        return ", ".join(o.name if o.default in (o.empty, "") else f"{o.name}={o.default}" for o in options)

    def _summary(self, name: str) -> str:
        return next(iter((inspect.getdoc(self.functions[name]) or "").splitlines()), "")


_plugins_loaded = False


def load_plugins() -> None:
    """Import the modules that installed packages list under the entry point group, once."""
    global _plugins_loaded
    if not _plugins_loaded:
        from importlib.metadata import entry_points  # which takes a while to load

        _plugins_loaded = True
        for entry in entry_points(group=ENTRY_POINT_GROUP):
            try:
                entry.load()
            except Exception as error:
                raise LidflError(
                    f"the package behind entry point '{entry.name}' cannot be loaded; mend or uninstall it: "
                    f"{in_a_line(error)}"
                ) from error


@lru_cache(maxsize=1000)  # a sweep of thousands of runs looks each of them up many times
def _signature(function: FunctionType) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function).parameters


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """What a function takes; another callable, which may not be hashable, is looked at each time."""
    if isinstance(function, FunctionType):
        return _signature(function)
    return inspect.signature(function).parameters


def _options(function: Callable[..., Any], context: frozenset[str]) -> dict[str, inspect.Parameter]:
    parameters = _parameters(function).values()
    return {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in context}


def own_options(function: Callable[..., Any], context: frozenset[str]) -> dict[str, inspect.Parameter]:
    """The options of a function that nobody registered: whatever it takes by name that is no context.

    Where one has no type, its default has.
    """
    taken = (p for p in inspect.signature(function).parameters.values() if p.kind in _BY_NAME)
    return {p.name: _typed(p) for p in taken if p.name not in context}


def _typed(parameter: inspect.Parameter) -> inspect.Parameter:
    if parameter.annotation is not parameter.empty:
        return parameter
    return parameter.replace(annotation=str if parameter.default is parameter.empty else type(parameter.default))


def _type_name(parameter: inspect.Parameter) -> str:
    """How an option's type is spelled; with postponed annotations that is all there is to see."""
    return str(getattr(parameter.annotation, "__name__", parameter.annotation))


def _parse_bool(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


_PARSERS: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "str": str, "bool": _parse_bool}


def _convert(text: str, to: str, what: str) -> Any:
    if to not in _PARSERS:
        raise LidflError(f"{what} is of type {to}, which cannot be written here")
    try:
        return _PARSERS[to](text)
    except (ValueError, KeyError):
        raise LidflError(f"{what} must be {to}, not '{text}'") from None


def _refuse_beyond(value: Any, allowed: Range, what: str) -> None:
    """Refuse a number out of its range; one that is not finite is in none."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return
    least, most = allowed
    if isinstance(value, float) and not isfinite(value):
        raise LidflError(f"{what} must be a finite number, not {value}")
    if not least <= value <= most:
        told = f"at least {least:g}" if most == inf else f"from {least:g} to {most:g}"
        raise LidflError(f"{what} must be {told}, not {value}")
