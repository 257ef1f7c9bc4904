"""A model is one flat vector: nn.Module <-> vector.

The vector holds the module's parameters and then its floating-point buffers (BatchNorm's running statistics), in
the module's own order. Integer buffers are not trained and stay as initialised.
"""

from collections.abc import Mapping
from math import prod

import torch
from torch import Tensor, nn
from torch.func import functional_call

from lidfl.errors import LidflError
from lidfl.types import Parameters


class Network:
    """A module seen as a function of one flat vector; the module itself is never changed."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        buffers = dict(module.named_buffers())
        self.trained = dict(module.named_parameters())
        self.statistics = {name: b for name, b in buffers.items() if b.is_floating_point()}
        self.counters = {name: b for name, b in buffers.items() if not b.is_floating_point()}
        self.shapes = {name: tensor.shape for name, tensor in (self.trained | self.statistics).items()}
        self.sizes = [prod(shape) for shape in self.shapes.values()]
        self.dim = sum(self.sizes)
        self.convolves = any(len(shape) == 4 for shape in self.shapes.values())
        if self.dim == 0:
            raise LidflError("the model has no parameters to train")

    def initial(self) -> Parameters:
        """The vector of the module as it was handed over."""
        return self.flatten(self.trained | self.statistics)

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
        # A module counts batches in an integer buffer; it gets a copy, so that its own stays as initialised.
        counters = {name: counter.clone() for name, counter in self.counters.items()}
        logits: Tensor = functional_call(self.module, {**tensors, **counters}, (images,))
        return logits

    def state_dict(self, vector: Parameters) -> dict[str, Tensor]:
        """What `nn.Module.load_state_dict` takes: every tensor under its name, integer buffers included."""
        tensors = {**self.unflatten(vector), **self.counters}
        names = self.module.state_dict().keys()
        return {name: tensors[name].detach().clone().contiguous() for name in names if name in tensors}
