"""The pages of the reference, written from the code: commands, settings, everything with a name, Python.

    make reference

`tests/handbook/test_reference.py` fails when a page and the code disagree.
"""

import ast
import inspect
import os
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, Field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import lidfl
from lidfl.cli.main import COMMANDS, command_class
from lidfl.cli.registered import REGISTRIES
from lidfl.methods.method import METHODS
from lidfl.registry import Registry
from lidfl.settings.defaults import CIFAR10, FEMNIST, SMALL
from lidfl.settings.experiment import Experiment

PLACE = Path(__file__).parents[1] / "docs" / "reference"
NOTE = "<!-- Written by `make reference` from the code; edits here are lost. -->\n\n"
MODULES = re.compile(r"\b(?:lidfl|pathlib|collections\.abc|numpy|torch)\.(?:\w+\.)*")
"""What stands before a name in a signature, and is not worth reading."""
ADDRESS = re.compile(r"<function (?:\w+\.)*(\w+) at 0x[0-9a-f]+>")
"""A function as a signature shows it."""
SPECIAL = re.compile(r"([\\*_\[\]<>|])")


def commands() -> str:
    """Every command with its options."""
    parts = [
        "# Commands\n\n`lidfl` alone shows what one can do next. Exit codes: 0 done; 1 a fault of lidfl itself; 2 "
        "what you can mend, told in one line; 130 stopped. `--json` writes what would be a table for programs.\n"
    ]
    for name in COMMANDS:
        command = command_class(name)
        parts.append(f"\n## lidfl {name}\n\n{prose(inspect.getdoc(command) or '')}\n\n")
        parts.append(table(("option", "what it is", "default"), options(command)))
        if set(_settings()) & {field.name for field in fields(command)} and name in ("run", "federation"):
            parts.append("\nAnd every [setting](settings.md) as a flag: `num_clients` is `--num-clients`.\n")
    return "".join(parts)


def options(command: type[Any]) -> Iterator[Sequence[str]]:
    """The options of a command that are its own, not an experiment's."""
    told = dict(_docstrings(command))
    for field in fields(command):
        if field.name in told:
            flag = field.name.replace("_", "-")
            shown = flag.upper() if _is_positional(field) else f"--{flag}"
            yield f"`{shown}`", prose(told[field.name]), _default(field)


def _docstrings(command: type[Any]) -> Iterator[tuple[str, str]]:
    """The fields of a class and its bases with the strings below them, as they stand in the source."""
    for base in reversed(command.__mro__[:-1]):
        if base.__module__ == "types":
            continue  # made from settings, and without a source
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, below in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                yield field.target.id, str(ast.literal_eval(below.value)) if isinstance(below, ast.Expr) else ""


def _is_positional(field: Field[Any]) -> bool:
    return "Positional" in str(field.type) or "_PositionalMarker" in str(field.type) or "MARKER" in str(field.type)


def _default(field: Field[Any]) -> str:
    if field.default is MISSING:
        return "needed"
    if field.name == "workers" and field.default == (os.cpu_count() or 1):
        return "one a core"
    if field.default in (None, "", ()):
        return ""
    return "off" if field.default is False else f"`{_text(field.default)}`"


def _text(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def settings() -> str:
    """Every setting of an experiment, and what it is for each data set."""
    rows = [
        (f"`{field.name}`", prose(field.metadata["help"]), _setting_default(field)) for field in fields(Experiment)
    ]
    by_data = [(f"`{name}`", *(f"`{d[name]}`" for d in (SMALL, FEMNIST, CIFAR10))) for name in sorted(SMALL)]
    presets = [
        (f"`{name}`", ", ".join(f"`{k} = {v}`" for k, v in METHODS[name].preset.items()) or "–") for name in METHODS
    ]
    return (
        "# Settings\n\nA setting is a flag of `lidfl run` (`--num-clients 35`), a line of a TOML file "
        "(`num_clients = 35`) and an argument in Python (`Experiment(num_clients=35)`).\n\n"
        + table(("setting", "what it is", "default"), rows)
        + "\n## Defaults that depend on the data set\n\nThose of FEMNIST and CIFAR are the paper's; the CNN on "
        "FEMNIST has a `batch_size` of 64.\n\n"
        + table(("setting", "digits, your own data", "FEMNIST", "CIFAR-10, CIFAR-100"), by_data)
        + "\n## What methods set\n\nA method sets these unless you do; all aggregators are methods too, "
        "and set nothing.\n\n" + table(("method", "settings"), presets)
    )


def _settings() -> Iterator[str]:
    return (field.name for field in fields(Experiment))


def _setting_default(field: Field[Any]) -> str:
    if field.default is None:
        paper = field.metadata["neutral"]
        return "" if "(default" in field.metadata["help"] or field.name == "name" else _open(field.name, paper)
    return "off" if field.default is False else f"`{field.default}`" if field.default != "" else ""


def _open(name: str, paper: object) -> str:
    if name in SMALL:
        return "the data set's"
    return "the method's" + ("" if paper is None else f", else `{str(paper).lower() if paper is False else paper}`")


def names() -> str:
    """Everything that `lidfl list` shows, with all of its docstring."""
    parts = [
        "# Everything with a name\n\nWhat `lidfl list` shows, with its source and its formula. Options follow "
        "a name: `lie:z=1.5`, `dirichlet:concentration=0.1`. Pre-aggregators stand before an "
        "aggregator: `nnm|krum`.\n"
    ]
    for registry in REGISTRIES:
        title = registry.kind.replace("_", " ").capitalize()
        parts.append(f"\n## {title}\n\n" + table(("name", "options", "what it is"), _entries(registry)))
    return "".join(parts)


def _entries(registry: Registry[Any]) -> Iterator[Sequence[str]]:
    for name, text, _ in registry.describe():
        function = registry.functions[name]
        if function.__module__.partition(".")[0] == "lidfl":  # not a plugin that happens to be installed
            yield f"`{name}`", f"`{text}`" if text else "", prose(inspect.getdoc(function) or "")


def python() -> str:
    """Every public name of the package."""
    parts = ["# Python\n\nEverything public can be imported from `lidfl`.\n"]
    for name in lidfl.__all__:
        thing = getattr(lidfl, name)
        if not name.startswith("_"):
            parts.append(f"\n## lidfl.{name}\n\n{_signature(name, thing)}{_description(name, thing)}\n")
    return "".join(parts)


def _signature(name: str, thing: Any) -> str:
    if isinstance(thing, Registry) or name == "Experiment" or not callable(thing):
        return ""
    try:
        text = str(inspect.signature(thing))
    except ValueError:
        return ""
    text = ADDRESS.sub(r"\1", MODULES.sub("", text)).replace("<factory>", "…").replace("'", "")
    return f"```python\n{name}{text}\n```\n\n"


def _description(name: str, thing: Any) -> str:
    if isinstance(thing, Registry):
        context = ", ".join(f"`{word}`" for word in sorted(thing.context))
        known = f"`@lidfl.{name}` adds a function as {_a(thing.kind)} under its own name. "
        known += "Keyword-only parameters become its options. [What there is](names.md)."
        return known + (
            f" A function that names one of these as a keyword-only parameter is given it: {context}."
            if context
            else ""
        )
    text, methods = inspect.getdoc(thing) or "", ""
    if inspect.isclass(thing) and not issubclass(thing, Exception):
        members = list(_members(thing))
        methods = "\n\n" + table(("member", "what it is"), members) if members else ""
    return examples(text) + methods.rstrip("\n")


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


VALUES = (property, cached_property)


def _members(thing: type[Any]) -> Iterator[Sequence[str]]:
    for name, member in vars(thing).items():
        inner = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        told = inspect.getdoc(inner) if callable(inner) or isinstance(inner, VALUES) else None
        if told and not name.startswith("_"):
            call = "" if isinstance(inner, VALUES) else "()"
            yield f"`{name}{call}`", prose(told.partition("\n\n")[0])


def examples(text: str) -> str:
    """A docstring as Markdown, with its examples as code."""
    parts = []
    for part in text.split("\n\n"):
        code = part.lstrip().startswith(">>>")
        parts.append(f"```python\n{textwrap.dedent(part)}\n```" if code else prose(part))
    return "\n\n".join(parts)


def prose(text: str) -> str:
    """Plain text, which may hold `code`, as one line of Markdown; paragraphs stay apart."""
    paragraphs = (" ".join(part.split()) for part in text.split("\n\n"))
    return "<br>".join(_escaped(paragraph) for paragraph in paragraphs if paragraph)


def _escaped(text: str) -> str:
    parts = text.split("`")
    pairs = [SPECIAL.sub(r"\\\1", part) if i % 2 == 0 else f"`{part}`" for i, part in enumerate(parts)]
    return "".join(pairs).replace("|", r"\|").replace(r"\\|", r"\|")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


PAGES = {"commands.md": commands, "settings.md": settings, "names.md": names, "python.md": python}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (PLACE / name).write_text(NOTE + page(), encoding="utf-8")
