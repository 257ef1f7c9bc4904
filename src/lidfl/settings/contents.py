"""What an object of the user's own is, in bytes: the same in every process, and another if it has changed."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import blake2b
from textwrap import dedent
from typing import Any

import numpy as np

from lidfl.errors import LidflError

PLAIN = (str, bytes, int, float, bool, complex, type(None))


def qualified_name(thing: Any) -> str:
    """Where a function or class was written, and what it is called there."""
    inner = thing.func if isinstance(thing, partial) else thing
    named = inner if hasattr(inner, "__qualname__") else type(inner)
    name = f"{named.__module__}.{named.__qualname__}".replace("<locals>.", "")
    return "".join(c if c.isalnum() or c in "._" else "_" for c in name)


def content_of_function(function: Any) -> bytes:
    """A function's source, its defaults, what it closes over, and the plain globals that it reads."""
    if isinstance(function, partial):
        return content_of_function(function.func) + content_of([function.args, function.keywords])
    inner = inspect.unwrap(function)
    if not inspect.isfunction(inner):
        return _source(inner) + (b"" if isinstance(inner, type) else content_of(vars(inner)))
    held: dict[str, Any] = dict(inspect.getclosurevars(inner).nonlocals)
    read = {name: inner.__globals__[name] for name in inner.__code__.co_names if name in inner.__globals__}
    held |= {name: value for name, value in read.items() if isinstance(value, PLAIN)}
    return _source(inner) + content_of([inner.__defaults__, inner.__kwdefaults__, held])


def content_of(value: Any) -> bytes:
    """The content of numbers, texts, arrays, tensors, modules, functions and containers of these."""
    if isinstance(value, PLAIN):
        return repr(value).encode()
    if hasattr(value, "state_dict"):  # a torch module
        return _source(type(value)) + repr(value).encode() + content_of(dict(value.state_dict()))
    if hasattr(value, "detach"):  # a tensor
        return content_of(value.detach().cpu().numpy())
    if isinstance(value, np.ndarray | np.generic):
        flat = np.ascontiguousarray(value).reshape(-1)
        return repr((flat.dtype.str, np.shape(value))).encode() + blake2b(flat.view(np.uint8).data).digest()
    if isinstance(value, Mapping):
        return b"{" + b",".join(content_of(key) + b":" + content_of(value[key]) for key in value) + b"}"
    if isinstance(value, list | tuple):
        return b"[" + b",".join(map(content_of, value)) + b"]"
    if callable(value):
        return content_of_function(value)
    raise LidflError(
        f"what is handed over holds a {type(value).__name__}, of which nobody can tell whether it is the same "
        "when the run is resumed; register a function by its name instead, such as @lidfl.attack"
    )


def _source(thing: Callable[..., Any]) -> bytes:
    """The text that something was written as or, where there is none, what it was compiled to."""
    try:
        return dedent(
            inspect.getsource(thing if inspect.isroutine(thing) or isinstance(thing, type) else type(thing))
        ).encode()
    except (OSError, TypeError):
        code = getattr(thing, "__code__", None)
        return repr((code.co_code, code.co_names)).encode() if code else qualified_name(thing).encode()
