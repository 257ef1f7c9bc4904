"""Local training and evaluation by the C++ engine, with torch's loop for whatever it hands back.

Its results are those of `client.local_update` and `client.logits` within float32's rounding, and the same bits for
any number of threads, jobs or images at a time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lidfl.learning.client import LocalTraining, local_update, logits
from lidfl.learning.native.build import NativeUnavailable, library
from lidfl.learning.native.plan import Plan, describe
from lidfl.learning.parameters import Network
from lidfl.types import Parameters, Updates

if TYPE_CHECKING:
    from lidfl.learning.engines import Engine, Jobs

LARGEST_PIXEL = 1e6
"""As in network.h: up to here the engine can tell that nothing overflows."""


def native(network: Network, training: LocalTraining, images: Tensor, labels: Tensor) -> Engine:
    """An engine for convolutional networks; NativeUnavailable where it cannot run them."""
    plan = _plan_for(network, images, labels)
    loaded, shape = library(), _shape(plan)
    images, labels = images.contiguous(), labels.contiguous()

    def train(jobs: Jobs) -> Updates:
        starts, rows = jobs.starts.detach().contiguous(), jobs.rows.long().contiguous()
        if rows.numel() == 0 or starts.dtype != torch.float32:
            return _by_torch(jobs, range(len(starts)), torch.zeros_like(starts))
        if rows.min() < 0 or rows.max() >= len(images):
            raise IndexError("a batch has rows that are not there")
        updates, reliable = torch.empty_like(starts), torch.zeros(len(starts), dtype=torch.uint8)
        addresses = [tensor.data_ptr() for tensor in (images, labels, starts, rows)]
        failed = loaded.lidfl_train(
            *(shape, *addresses, *rows.shape, training.learning_rate, training.momentum),
            *(torch.get_num_threads(), updates.data_ptr(), reliable.data_ptr()),
        )
        if failed:
            raise MemoryError("not enough memory to train")
        return _by_torch(jobs, (reliable == 0).nonzero().flatten().tolist(), updates)

    def _by_torch(jobs: Jobs, which: range | list[int], updates: Updates) -> Updates:
        """Those jobs anew with torch: where numbers overflow, what comes out is torch's."""
        for job in which:
            start, rows, seed = jobs.starts[job], jobs.rows[job], jobs.dropout_seeds[job]
            updates[job] = local_update(network, start, images, labels, rows, training, seed)
        return updates

    return train


def native_logits(network: Network) -> Callable[[Parameters, Tensor], Tensor]:
    """How a model's logits are computed; whatever the engine cannot do is left to torch."""

    @lru_cache(maxsize=8)
    def plan_for(image_shape: torch.Size) -> Plan | None:
        return describe(network.module, image_shape)

    @torch.no_grad()
    def evaluate(vector: Parameters, images: Tensor) -> Tensor:
        plan = plan_for(images.shape[1:])
        if plan is None or not (_is_float(vector) and _is_float(images)):
            return logits(network, vector, images)
        vector, images = vector.contiguous(), images.contiguous()
        outputs = torch.empty(len(images), plan.classes)
        unreliable = library().lidfl_logits(
            *(_shape(plan), vector.data_ptr(), images.data_ptr(), len(images)),
            *(torch.get_num_threads(), outputs.data_ptr()),
        )
        return logits(network, vector, images) if unreliable else outputs

    return evaluate


def runs(network: Network, image_shape: torch.Size | tuple[int, int, int]) -> bool:
    """Whether the engine can run a network; it is not compiled for the answer."""
    return describe(network.module, image_shape) is not None


def _plan_for(network: Network, images: Tensor, labels: Tensor) -> Plan:
    """The plan of a network, if its data are such that the engine can be relied on."""
    plan = describe(network.module, images.shape[1:])
    if plan is None:
        raise NativeUnavailable("the C++ engine does not run this model")
    if not _is_float(images) or labels.dtype != torch.int64:
        raise NativeUnavailable("the C++ engine takes float32 images and integer labels on the CPU")
    if len(labels) and not (labels.min() >= 0 and labels.max() < plan.classes):
        raise NativeUnavailable("the C++ engine takes labels from 0 to the number of classes")
    if len(images) and not max(-images.min().item(), images.max().item()) <= LARGEST_PIXEL:  # nor is NaN
        raise NativeUnavailable("the C++ engine takes finite pixels only")
    return plan


def _is_float(tensor: Tensor) -> bool:
    """Whether the engine can read a tensor."""
    return tensor.dtype == torch.float32 and tensor.device.type == "cpu"


def _shape(plan: Plan) -> ctypes.Array[ctypes.c_int32]:
    """A plan as the engine reads it."""
    return (ctypes.c_int32 * len(plan.shape))(*plan.shape)
