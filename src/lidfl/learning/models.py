"""Models: each is a function that returns a fresh nn.Module.

A user's own model is `package.module:function`; like those here it may name `image_shape` (channels, height, width)
and `num_classes` as parameters, and is then given them.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable

from lidfl.errors import LidflError
from lidfl.lazily import nn, torch
from lidfl.registry import Bound, Registry

ImageShape = tuple[int, int, int]

CONTEXT = frozenset({"image_shape", "num_classes"})
model: Registry[nn.Module] = Registry("model", CONTEXT)


@model
def lr(image_shape: ImageShape, num_classes: int) -> nn.Module:
    """Logistic regression: the flattened image to the classes, with bias (the paper's convex model)."""
    channels, height, width = image_shape
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, num_classes))


@model
def mlp(image_shape: ImageShape, num_classes: int, *, hidden: int = 128) -> nn.Module:
    """A perceptron with one hidden layer of ReLU units."""
    channels, height, width = image_shape
    inputs = channels * height * width
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, num_classes))


@model
def cnn(image_shape: ImageShape, num_classes: int) -> nn.Module:
    """The paper's CNN: C(32)-R-M-C(64)-R-M-L(classes), kernels of 5, images padded to 32×32.

    Standardised background is 0, so padding the image with background and convolving without padding is the same
    as letting the first convolution pad with zeros. ReLU and max commute: pooling first gives the same numbers
    from a quarter of the work.
    """
    channels, height, width = image_shape
    pad = (max(0, 32 - height + 1) // 2, max(0, 32 - width + 1) // 2)
    rows, columns = (((size + 2 * p - 4) // 2 - 4) // 2 for size, p in zip((height, width), pad, strict=True))
    return nn.Sequential(
        *(nn.Conv2d(channels, 32, 5, padding=pad), nn.MaxPool2d(2), nn.ReLU(inplace=True)),
        *(nn.Conv2d(32, 64, 5), nn.MaxPool2d(2), nn.ReLU(inplace=True)),
        *(nn.Flatten(), nn.Linear(64 * rows * columns, num_classes)),
    )


def build_model(spec: str, image_shape: ImageShape, num_classes: int, seed: int) -> nn.Module:
    """The module that a spec names, initialised from the seed whatever the global random state."""
    bound = resolve(spec)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = bound(image_shape=image_shape, num_classes=num_classes)
    if not isinstance(module, nn.Module):
        raise LidflError(f"model '{spec}' returned {type(module).__name__}; it must return a torch.nn.Module")
    return module


def resolve(spec: str) -> Bound[nn.Module]:
    """A registered model, or the user's own function `package.module:function`."""
    name, colon, attribute = spec.partition(":")
    if name in model or not colon:
        return model.resolve(spec)
    function = _import(name, attribute)
    return Bound(spec, function, {}, CONTEXT & inspect.signature(function).parameters.keys())


def _import(module_name: str, attribute: str) -> Callable[..., nn.Module]:
    try:
        function = getattr(importlib.import_module(module_name), attribute)
    except ModuleNotFoundError as error:
        known = ", ".join(model)
        raise LidflError(
            f"model '{module_name}:{attribute}': {error}; choose from {known}, or name a module:function"
        ) from None
    except AttributeError:
        raise LidflError(f"model '{module_name}:{attribute}': the module has no '{attribute}'") from None
    if not callable(function):
        raise LidflError(f"model '{module_name}:{attribute}' is not a function")
    return function  # type: ignore[no-any-return]
