"""A model is one flat vector: nn.Module <-> vector.

The vector holds the module's parameters, then those that are frozen and the floating-point buffers (BatchNorm's
running statistics). Integer buffers are not trained and stay as initialised.
"""

from collections.abc import Mapping
from math import prod

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.parameter import is_lazy

from lidfl.errors import LidflError
from lidfl.types import Parameters


class Network:
    """A module seen as a function of one flat vector; the module itself is never changed."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        refuse_lazy(module)
        parameters, buffers = dict(module.named_parameters()), dict(module.named_buffers())
        self.trained = {name: p for name, p in parameters.items() if p.requires_grad}
        frozen = {name: p for name, p in parameters.items() if not p.requires_grad}
        self.untrained = frozen | {name: b for name, b in buffers.items() if b.is_floating_point()}
        self.counters = {name: b for name, b in buffers.items() if not b.is_floating_point()}
        self.shapes = {name: tensor.shape for name, tensor in (self.trained | self.untrained).items()}
        self.sizes = [prod(shape) for shape in self.shapes.values()]
        self.dim = sum(self.sizes)
        self.convolves = any(len(shape) == 4 for shape in self.shapes.values())
        if not self.trained:
            raise LidflError("the model has no parameters to train")
        if len({tensor.dtype for tensor in (self.trained | self.untrained).values()}) > 1:
            raise LidflError("the model mixes float types; make it one, for instance with module.float()")

    def initial(self) -> Parameters:
        """The vector of the module as it was handed over."""
        return self.flatten(self.trained | self.untrained)

    def flatten(self, tensors: Mapping[str, Tensor]) -> Parameters:
        """Join named tensors into one vector."""
        return torch.cat([tensors[name].detach().reshape(-1) for name in self.shapes])

    def unflatten(self, vector: Parameters) -> dict[str, Tensor]:
        """Cut a vector into named tensors, as views of it."""
        parts = torch.split(vector, self.sizes)
        return {name: part.view(shape) for part, (name, shape) in zip(parts, self.shapes.items(), strict=True)}

    def apply(self, tensors: Mapping[str, Tensor], images: Tensor, *, training: bool) -> Tensor:
        """Logits of a batch. In training, BatchNorm writes its statistics into `tensors`."""
        self.module.train(training)
        logits: Tensor = functional_call(self.module, dict(tensors), (images,))
        return logits

    def state_dict(self, vector: Parameters) -> dict[str, Tensor]:
        """What `nn.Module.load_state_dict` takes: every tensor under its name, integer buffers included."""
        tensors = {**self.unflatten(vector), **self.counters}
        owners = [*self.module.named_parameters(), *self.module.named_buffers()]
        name_of = {id(tensor): name for name, tensor in owners}  # tied weights have one owner and several names
        state = self.module.state_dict(keep_vars=True)
        return {name: tensors[name_of[id(tensor)]].detach().clone() for name, tensor in state.items()}


def refuse_lazy(module: nn.Module) -> None:
    """Refuse a module that does not know its size yet."""
    named = [*module.named_parameters(), *module.named_buffers()]
    lazy = [name for name, tensor in named if is_lazy(tensor)]
    if lazy:
        raise LidflError(
            f"the model's {lazy[0]} has no size yet; give a size (nn.Linear for nn.LazyLinear), or show the "
            "model a batch first"
        )


def linear_shape(network: Network) -> tuple[int, int]:
    """Classes and inputs of softmax regression."""
    classes, inputs = network.shapes[next(iter(network.shapes))]
    return classes, inputs
