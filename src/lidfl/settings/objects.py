"""Objects in the place of names: data, models and attacks that are handed over in Python.

Each becomes a name, what it is called and a digest of its content, and is kept where names are looked up; so the
rest of the house sees names, and a run can tell whether it is resumed with the same object.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lidfl.adversaries.attacks import attack
from lidfl.data.base import Dataset, Given, Images, dataset
from lidfl.data.npz import dataset_of
from lidfl.errors import LidflError
from lidfl.learning.models import CONTEXT, model
from lidfl.plugins import digest_of, in_a_line
from lidfl.registry import OBJECT, Registry, own_options
from lidfl.settings.contents import content_of, content_of_function, qualified_name

REGISTRIES: Mapping[str, Registry[Any]] = {"dataset": dataset, "model": model, "attack": attack}
"""The settings that may be objects, and where their names are looked up."""
WAYS = {
    "dataset": "a name, (x, y), a torch Dataset, a function, or a list with the data of each client",
    "model": "a name, a torch.nn.Module or a function that makes one",
    "attack": "a name or a function",
}


def name_of(setting: str, value: Any) -> str:
    """The name that an object goes by from now on."""
    registry = REGISTRIES[setting]
    known = [name for name, function in registry.functions.items() if function is value]
    if known:
        return known[0]
    if _is_a(value, "nn.Module"):
        from lidfl.learning.parameters import refuse_lazy  # which loads torch; here it is loaded

        refuse_lazy(value)
        return _keep(registry, qualified_name(type(value)), content_of(value), partial(deepcopy, value))
    if callable(value) and not _is_a(value, "utils.data.Dataset"):
        return importable_name(value) if setting == "model" else _keep_function(setting, value)
    if setting != "dataset":
        raise LidflError(f"{setting} must be {WAYS[setting]}, not {value!r}")
    data = dataset_from(value)
    return _keep(registry, _label(value), content_of(vars(data)), Given(data))


def objects_of(settings: object) -> list[str]:
    """The settings of an experiment that were objects and not names."""
    return [name for name in REGISTRIES if OBJECT.fullmatch(getattr(settings, name))]


def importable_name(function: Callable[..., Any]) -> str:
    """A model function as `module:function`, if that leads to it in any process; otherwise as an object."""
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    found = getattr(sys.modules.get(module), name, None)
    if found is function and module != "__main__" and not module.startswith("lidfl_plugin_"):
        return f"{module}:{name}"
    open_options = [o.name for o in own_options(function, CONTEXT).values() if o.default is o.empty]
    if open_options:
        raise LidflError(
            f"model {qualified_name(function)} takes '{open_options[0]}', which it is not given: choose a value "
            "with functools.partial"
        )
    return _keep(model, qualified_name(function), content_of_function(function), function)


def _keep_function(setting: str, function: Callable[..., Any]) -> str:
    registry = REGISTRIES[setting]
    try:
        registry.check_signature(qualified_name(function), function)
    except TypeError as error:
        raise LidflError(str(error)) from None
    return _keep(registry, qualified_name(function), content_of_function(function), function)


def _keep(registry: Registry[Any], name: str, content: bytes, make: Callable[..., Any]) -> str:
    full = f"{name}@{digest_of(content)}"
    registry.objects[full] = make
    return full


# Data


def dataset_from(value: Any) -> Dataset:
    """Whatever holds images or features and their classes, as a data set."""
    if isinstance(value, Dataset):
        return value
    if _is_a(value, "utils.data.Dataset"):
        return dataset_of_arrays(*_columns(value))
    if isinstance(value, Mapping) and value.keys() & {"x", "images"}:
        named = dict(value)
        x, y = (named.pop(long, named.pop(short, None)) for long, short in (("images", "x"), ("labels", "y")))
        return dataset_of_arrays(x, y, **named)
    if isinstance(value, tuple) and len(value) in (2, 3) and not isinstance(value[0], tuple):
        return dataset_of_arrays(*value)
    if isinstance(value, Mapping | Sequence) and not isinstance(value, str) and len(value):
        return dataset_of_clients(list(value.values()) if isinstance(value, Mapping) else value)
    raise LidflError(f"dataset must be {WAYS['dataset']}, not {type(value).__name__}")


def dataset_of_arrays(x: object, y: object, clients: object = None, writers: object = None) -> Dataset:
    """Images or rows of features, the class of each, and whose each is if somebody's."""
    arrays = {"images": as_images(x), "labels": as_array(y, "y")}
    owners = {"clients": clients, "writers": writers}
    arrays |= {name: as_array(owner, name) for name, owner in owners.items() if owner is not None}
    if arrays["labels"].dtype == np.bool_:
        arrays["labels"] = arrays["labels"].astype(np.int64)
    return dataset_of(arrays, "the data")


def dataset_of_clients(parts: Iterable[Any]) -> Dataset:
    """One data set a client, joined; whose each row is goes with it."""
    every = [dataset_from(part) for part in parts]
    for client, part in enumerate(every):
        if part.images.shape[1:] != every[0].images.shape[1:] or part.images.dtype != every[0].images.dtype:
            raise LidflError(
                f"client {client} has {part.images.dtype} of {part.images.shape[1:]}, client 0 has "
                f"{every[0].images.dtype} of {every[0].images.shape[1:]}; bring all into one form"
            )
    images, labels = (np.concatenate([getattr(part, name) for part in every]) for name in ("images", "labels"))
    clients = np.repeat(np.arange(len(every)), [len(part.labels) for part in every])
    return dataset_of({"images": images, "labels": labels, "clients": clients}, "the data")


def as_images(x: object) -> NDArray[Any]:
    """An array of images or features; whole numbers other than bytes count as floats."""
    array = as_array(x, "x")
    if array.dtype.kind in "US":
        raise LidflError("x is text; make it an array of numbers")
    return array.astype(np.float32) if array.dtype.kind in "bi" or array.dtype.itemsize > 1 else array


def as_array(value: object, what: str) -> NDArray[Any]:
    """A NumPy array of what is one, or can be made one: a tensor, a list, a column of a table."""
    if _is_a(value, "Tensor"):
        value = value.detach().cpu().numpy()  # type: ignore[attr-defined]
    try:
        array = np.asarray(value)
    except ValueError:
        raise LidflError(f"{what} is no array: its rows differ in length; bring them to one shape") from None
    if array.dtype.kind not in "biufUS":
        raise LidflError(f"{what} is an array of {array.dtype}; make it one of numbers")
    return array


def checked_inputs(x: object, shape: tuple[int, int, int]) -> Images:
    """Images or features in the form that a run's models were trained on."""
    images = as_images(x)
    whole: Images = dataset_of({"images": images, "labels": np.zeros(len(images), np.int64)}, "x").images
    if whole.shape[1:] != shape:
        raise LidflError(f"x has images of {whole.shape[1:]}; the models take {shape}")
    return whole


def _columns(data: Any) -> tuple[Any, Any]:
    """All of a torch Dataset: what goes in, and the classes."""
    if _is_a(data, "utils.data.TensorDataset") and len(data.tensors) == 2:
        return data.tensors[0], data.tensors[1]
    items = _items(data)
    if not items or not all(isinstance(item, tuple | list) and len(item) == 2 for item in items):
        raise LidflError("a torch Dataset must give pairs of an input and its class")
    inputs = [as_array(each, "x") for each, _ in items]
    odd = next((place for place, each in enumerate(inputs) if each.shape != inputs[0].shape), None)
    if odd is not None:
        raise LidflError(
            f"inputs of a torch Dataset must be of one shape: item 0 has {inputs[0].shape}, item {odd} has "
            f"{inputs[odd].shape}"
        )
    return np.stack(inputs), [_class(each, place) for place, (_, each) in enumerate(items)]


def _items(data: Any) -> list[Any]:
    """All that a torch Dataset gives; its code is the user's, and may raise anything."""
    if _is_a(data, "utils.data.IterableDataset"):
        try:
            return list(data)
        except Exception as error:
            raise LidflError(f"a torch Dataset cannot be read: {in_a_line(error)}") from error
    try:
        size = len(data)
    except Exception as error:
        raise LidflError(
            f"a torch Dataset must have a length, or be an IterableDataset: {in_a_line(error)}"
        ) from error
    items = []
    for place in range(size):
        try:
            items.append(data[place])
        except Exception as error:
            raise LidflError(f"item {place} of a torch Dataset cannot be read: {in_a_line(error)}") from error
    return items


def _class(value: Any, place: int) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, RuntimeError):
        raise LidflError(
            f"item {place} of a torch Dataset has a {type(value).__name__} for its class; give a whole number"
        ) from None


def _label(value: Any) -> str:
    """What data is called: by its type, if that says something."""
    if _is_a(value, "utils.data.Dataset"):
        return qualified_name(type(value))
    return "clients" if isinstance(value, list) else "arrays"


def _is_a(value: object, path: str) -> bool:
    """Whether something is of a type of torch; if torch is not loaded, nothing is."""
    found: Any = sys.modules.get("torch")
    for name in path.split("."):
        found = getattr(found, name, None)
    return isinstance(found, type) and isinstance(value, found)
