"""Training with the task's own loss and optimiser; without them, a node trains as `lidfl.learning.client` does."""

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lidfl.learning.client import LocalTraining
from lidfl.learning.parameters import Network
from lidfl.types import Parameters


def trains_itself(task: Any) -> bool:
    """Whether a task says how it is trained."""
    return hasattr(task, "loss") or hasattr(task, "optimizer")


def own_update(
    task: Any,
    network: Network,
    start: Parameters,
    data: tuple[Tensor, Tensor],
    batches: Iterable[Tensor],
    training: LocalTraining,
    seed: int,
) -> Parameters:
    """What training makes of a model: u = w_τ − w_0. `seed` makes models with dropout repeatable."""
    module: nn.Module = task.model()
    module.load_state_dict(network.state_dict(start))
    module.train()
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    make = getattr(task, "optimizer", _sgd)
    optimizer: torch.optim.Optimizer = make(trained, training.learning_rate, training.momentum)
    inputs, labels = data
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for rows in batches:
            optimizer.zero_grad()
            torch.autograd.backward(loss_of(task, module, inputs[rows], labels[rows]))
            optimizer.step()
    return network.flatten({**dict(module.named_parameters()), **dict(module.named_buffers())}) - start


def loss_of(task: Any, module: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    """What is to be made small: the task's own loss if it can be differentiated, else the mean cross-entropy."""
    if hasattr(task, "loss"):
        value = task.loss(module, inputs, labels)
        if isinstance(value, Tensor) and value.requires_grad:
            return value
    return F.cross_entropy(module(inputs), labels)


def _sgd(parameters: list[nn.Parameter], learning_rate: float, momentum: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=learning_rate, momentum=momentum)
