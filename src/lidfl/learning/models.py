"""Models: each is a function that returns a fresh nn.Module.

A user's own model is `package.module:function` or `./file.py:function`; like those here it may name `image_shape`
(channels, height, width) and `num_classes` as parameters, and is then given them. What else it takes are
its options: `package.module:function:hidden=16`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from itertools import pairwise
from math import prod
from pathlib import Path

from lidfl.errors import LidflError
from lidfl.lazily import nn, torch
from lidfl.plugins import in_a_line, load_module
from lidfl.registry import Bound, Registry, own_options

ImageShape = tuple[int, int, int]

CONTEXT = frozenset({"image_shape", "num_classes"})
model: Registry[nn.Module] = Registry("model", CONTEXT, given=())


@model
def lr(image_shape: ImageShape, num_classes: int) -> nn.Module:
    """Logistic regression: the flattened image to the classes, with bias (the paper's convex model)."""
    channels, height, width = image_shape
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, num_classes))


@model
def mlp(image_shape: ImageShape, num_classes: int, *, hidden: str = "128") -> nn.Module:
    """A perceptron with hidden layers of ReLU units: one of 128, or as many as `hidden` says, such as 256x128."""
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in hidden.split("x")):
        raise LidflError(f"hidden '{hidden}' must be whole numbers joined by x, such as 128 or 256x128")
    widths = [prod(image_shape), *map(int, hidden.split("x"))]
    layers = [layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(widths[-1], num_classes))


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


@model
def resnet20(image_shape: ImageShape, num_classes: int, *, groups: int = 8) -> nn.Module:
    """ResNet-20 for small images, with GroupNorm in the place of BatchNorm (He et al. 2016, Hsieh et al. 2020).

    Three stages of three blocks, 16, 32 and 64 channels wide; shortcuts have no parameters. BatchNorm's statistics
    are each client's own, and do not survive averaging where clients differ.
    """
    if groups not in (1, 2, 4, 8, 16):
        raise LidflError(f"groups must divide 16, not {groups}")
    from lidfl.learning.resnet import resnet

    return resnet(image_shape[0], num_classes, blocks=3, groups=groups)


def build_model(spec: str, image_shape: ImageShape, num_classes: int, seed: int) -> nn.Module:
    """The module that a spec names, initialised from the seed whatever the global random state."""
    bound = resolve(spec)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            module = bound(image_shape=image_shape, num_classes=num_classes)
        except LidflError:
            raise
        except Exception as error:  # a user's own code may raise anything
            raise LidflError(f"model '{spec}' cannot be made: {in_a_line(error)}") from error
    if not isinstance(module, nn.Module):
        raise LidflError(f"model '{spec}' returned {type(module).__name__}; it must return a torch.nn.Module")
    return module


def resolve(spec: str) -> Bound[nn.Module]:
    """A registered model, or the user's own function, `package.module:function` or `./file.py:function`."""
    name, colon, rest = spec.partition(":")
    if name in model or not colon:
        return model.resolve(spec)
    attribute, _, options = rest.partition(":")
    function = _own_function(name, attribute)
    return model.bind(f"{name}:{attribute}", function, options, own_options(function, CONTEXT))


def own_file(spec: str) -> str:
    """The user's file that a spec such as `./file.py:function` names; empty if it names none."""
    name = spec.partition(":")[0]
    return name if name.endswith(".py") else ""


def absolute_model(spec: str) -> str:
    """The same spec for processes with another working directory."""
    file = own_file(spec)
    return str(Path(file).expanduser().resolve()) + spec.removeprefix(file) if file else spec


def _own_function(module_name: str, attribute: str) -> Callable[..., nn.Module]:
    what = f"model '{module_name}:{attribute}'"
    try:
        module = load_module(module_name) if own_file(module_name) else importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        known = ", ".join(model)
        raise LidflError(f"{what}: {error}; choose from {known}, or name a module:function") from None
    except LidflError:
        raise
    except Exception as error:  # a user's own code may raise anything
        raise LidflError(f"{what}: its module cannot be imported: {in_a_line(error)}") from error
    function = getattr(module, attribute, None)
    if function is None:
        raise LidflError(f"{what}: the module has no '{attribute}'")
    if not callable(function):
        raise LidflError(f"{what} is not a function")
    return function  # type: ignore[no-any-return]
