"""torch, and what brings it along, loaded when it is first used.

It takes a second or two to load. A mistyped name, a help text or a plan should not have to wait for it, so every
module that they come past takes torch from here.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["nn", "tensor_files", "torch"]


class Lazily:
    """Stands for a module, and imports it when one of its names is first asked for."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(import_module(self._module), name)
        setattr(self, name, found)  # the next time nobody comes here
        return found


if TYPE_CHECKING:
    import torch as torch
    from safetensors import torch as tensor_files
    from torch import nn as nn
else:
    torch, nn, tensor_files = Lazily("torch"), Lazily("torch.nn"), Lazily("safetensors.torch")
