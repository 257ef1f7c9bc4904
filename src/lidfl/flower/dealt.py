"""An experiment's data, dealt to one file a node: each node reads its own and no other."""

import json
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from lidfl import models
from lidfl.config import Experiment
from lidfl.datasets.federated import FederatedData


def deal(experiment: Experiment, data: FederatedData, folder: Path) -> None:
    """Write every client's training and validation data."""
    task = {"model": experiment.model, "image_shape": data.image_shape, "num_classes": data.num_classes}
    for client in range(experiment.num_clients):
        (images, labels), (held, held_labels) = data.train.of(client), data.validation.of(client)
        tensors = {"images": images, "labels": labels, "validation": held, "validation_labels": held_labels}
        copies = {name: tensor.cpu().clone() for name, tensor in tensors.items()}
        save_file(copies, folder / f"node-{client}.safetensors", {"task": json.dumps(task)})


class Dealt:
    """The task of a node that has been dealt its data."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def model(self) -> nn.Module:
        """The experiment's model; what it holds does not matter, a client only ever loads others' parameters."""
        with safe_open(self.folder / "node-0.safetensors", framework="pt") as file:
            task = json.loads(file.metadata()["task"])
        channels, height, width = task["image_shape"]
        return models.build(task["model"], (channels, height, width), task["num_classes"], seed=0)

    def data(self, partition: int, _partitions: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """The node's training and validation data."""
        with safe_open(self.folder / f"node-{partition}.safetensors", framework="pt") as file:
            images, labels, held, held_labels = map(
                file.get_tensor, ("images", "labels", "validation", "validation_labels")
            )
        assert labels.dtype == torch.int64
        return (images, labels), (held, held_labels)
