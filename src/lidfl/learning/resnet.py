"""Residual networks for small images, with GroupNorm."""

from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """Two convolutions and a shortcut without parameters: every other pixel, and zeros for new channels."""

    def __init__(self, inputs: int, outputs: int, groups: int) -> None:
        super().__init__()
        self.stride = outputs // inputs
        self.new = outputs - inputs
        self.first = nn.Conv2d(inputs, outputs, 3, stride=self.stride, padding=1, bias=False)
        self.first_norm = nn.GroupNorm(groups, outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.GroupNorm(groups, outputs)

    def forward(self, images: Tensor) -> Tensor:
        """The block's output; with twice the channels, of half the size."""
        inner = F.relu(self.first_norm(self.first(images)))
        shortcut = images[..., :: self.stride, :: self.stride]
        shortcut = F.pad(shortcut, (0, 0, 0, 0, self.new // 2, self.new - self.new // 2))
        return F.relu(self.second_norm(self.second(inner)) + shortcut)


def resnet(channels: int, num_classes: int, *, blocks: int, groups: int) -> nn.Module:
    """6·blocks + 2 layers: one convolution, three stages of blocks, a mean over pixels, one linear layer."""
    widths = [16, *[16] * blocks, *[32] * blocks, *[64] * blocks]
    stages = [Block(inputs, outputs, groups) for inputs, outputs in pairwise(widths)]
    return nn.Sequential(
        *(nn.Conv2d(channels, 16, 3, padding=1, bias=False), nn.GroupNorm(groups, 16), nn.ReLU()),
        *stages,
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, num_classes)),
    )
