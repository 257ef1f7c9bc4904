"""An experiment's data in one file a node: each node reads its own and no other."""

import json
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from lidfl.data.shards import FederatedData
from lidfl.learning.models import build_model


def write_shares(data: FederatedData, model: str, folder: Path, seed: int = 0) -> None:
    """Write every client's training and validation data, and which model they are for, drawn from which seed."""
    task = {"model": model, "seed": seed, "image_shape": data.image_shape, "num_classes": data.num_classes}
    for client in range(data.num_clients):
        (images, labels), (held, held_labels) = data.train.of(client), data.validation.of(client)
        tensors = {"images": images, "labels": labels, "validation": held, "validation_labels": held_labels}
        copies = {name: tensor.cpu().clone() for name, tensor in tensors.items()}
        save_file(copies, folder / f"node-{client}.safetensors", {"task": json.dumps(task)})


class FiledTask:
    """The task of a node whose share of the data is in a file."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def model(self) -> nn.Module:
        """The experiment's model, as it is at first."""
        with safe_open(self.folder / "node-0.safetensors", framework="pt") as file:
            task = json.loads(file.metadata()["task"])
        channels, height, width = task["image_shape"]
        return build_model(task["model"], (channels, height, width), task["num_classes"], task["seed"])

    def data(self, partition: int, _partitions: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """The node's training and validation data."""
        with safe_open(self.folder / f"node-{partition}.safetensors", framework="pt") as file:
            train = file.get_tensor("images"), file.get_tensor("labels")
            validation = file.get_tensor("validation"), file.get_tensor("validation_labels")
        assert train[1].dtype == torch.int64
        return train, validation
