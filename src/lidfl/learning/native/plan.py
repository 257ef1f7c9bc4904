"""Which modules the C++ engine can run, recognised by their structure, and how it is told of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

MOST_OUTPUTS = 4095
"""Of one layer; the engine counts them in 12 bits."""
MOST_PARAMETERS = 1 << 27


class _Unsupported(Exception):
    """The module is not one of those that the engine runs."""


@dataclass(frozen=True)
class Plan:
    """A network as the engine sees it."""

    shape: tuple[int, ...]
    """As integers, see `read_layers` in layers.h."""
    classes: int


@dataclass
class _Draft:
    """A plan that grows layer by layer."""

    channels: int
    height: int
    width: int
    convolutions: list[list[int]] = field(default_factory=list)
    linears: list[list[int]] = field(default_factory=list)
    features: int = 0
    """What the next linear layer reads; 0 before Flatten."""


def describe(module: nn.Module, image_shape: Sequence[int]) -> Plan | None:
    """The plan of a module for images (channels, height, width), or None if the engine cannot run it.

    It runs an `nn.Sequential` of Conv2d, each with MaxPool2d(2) and ReLU in either order or without them, then
    Flatten and Linear, with ReLU between them; all with biases, in float32 on the CPU, all parameters trained once.
    """
    if type(module) is not nn.Sequential or len(image_shape) != 3 or not _is_plain(module):
        return None
    draft = _Draft(image_shape[0], image_shape[1], image_shape[2])
    try:
        for layer in module:
            _add(draft, layer)
    except _Unsupported:
        return None
    if not draft.linears or draft.linears[-1][2]:
        return None
    counts = [len(draft.convolutions), len(draft.linears)]
    layers = [number for numbers in [*draft.convolutions, *draft.linears] for number in numbers]
    return Plan((*image_shape, *counts, *layers), draft.linears[-1][1])


def _is_plain(module: nn.Sequential) -> bool:
    """Whether all parameters are trained, of one kind and used once, and nothing hooks into the layers."""
    parameters = list(module.parameters())
    uses = sum(len(list(layer.parameters())) for layer in module)
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    hooked = any(getattr(part, name) for part in module.modules() for name in hooks)
    kinds = all(p.requires_grad and p.dtype == torch.float32 and p.device.type == "cpu" for p in parameters)
    small = sum(p.numel() for p in parameters) <= MOST_PARAMETERS
    return kinds and small and uses == len(parameters) and not hooked and not list(module.buffers())


def _add(draft: _Draft, layer: nn.Module) -> None:
    """One more layer; exactly these types, since a subclass may do anything."""
    if type(layer) is nn.Conv2d:
        _add_convolution(draft, layer)
    elif type(layer) is nn.MaxPool2d:
        _add_pooling(draft, layer)
    elif type(layer) is nn.ReLU:
        _add_relu(draft)
    elif type(layer) is nn.Flatten:
        _require(draft.features == 0 and layer.start_dim == 1 and layer.end_dim == -1)
        draft.features = draft.channels * draft.height * draft.width
    elif type(layer) is nn.Linear:
        _require(0 < draft.features == layer.in_features and layer.bias is not None)
        _require(layer.out_features <= MOST_OUTPUTS)
        draft.linears.append([1, layer.out_features, 0])
        draft.features = layer.out_features
    else:
        raise _Unsupported


def _add_convolution(draft: _Draft, layer: nn.Conv2d) -> None:
    """A convolution before Flatten, with everything about it as usual."""
    kernel, padding = layer.kernel_size[0], layer.padding
    _require(draft.features == 0 and layer.in_channels == draft.channels and layer.out_channels <= MOST_OUTPUTS)
    _require(layer.kernel_size == (kernel, kernel) and layer.stride == (1, 1) and layer.dilation == (1, 1))
    _require(layer.groups == 1 and layer.bias is not None and layer.padding_mode == "zeros")
    if isinstance(padding, str):
        raise _Unsupported
    draft.convolutions.append([0, layer.out_channels, kernel, padding[0], padding[1], 0, 0])
    draft.channels = layer.out_channels
    draft.height += 2 * padding[0] - kernel + 1
    draft.width += 2 * padding[1] - kernel + 1
    _require(draft.height > 0 and draft.width > 0)


def _add_pooling(draft: _Draft, layer: nn.MaxPool2d) -> None:
    """Pooling right after a convolution or its ReLU: the two commute."""
    _require(bool(draft.convolutions) and draft.features == 0 and draft.convolutions[-1][5] == 0)
    _require(layer.kernel_size in (2, (2, 2)) and layer.stride in (2, (2, 2)) and layer.padding in (0, (0, 0)))
    _require(layer.dilation in (1, (1, 1)) and not layer.ceil_mode and not layer.return_indices)
    draft.convolutions[-1][5] = 1
    draft.height //= 2
    draft.width //= 2
    _require(draft.height > 0 and draft.width > 0)


def _add_relu(draft: _Draft) -> None:
    """ReLU after a convolution or a linear layer; a second one changes nothing."""
    if draft.features == 0:
        _require(bool(draft.convolutions))
        draft.convolutions[-1][6] = 1
    else:
        _require(bool(draft.linears))
        draft.linears[-1][2] = 1


def _require(condition: bool) -> None:
    """Give up unless it holds."""
    if not condition:
        raise _Unsupported
