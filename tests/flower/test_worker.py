"""A node's own work."""

from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from lidfl.flower.codec import Ask
from lidfl.flower.local.shares import FiledTask, write_shares
from lidfl.flower.worker import Worker
from lidfl.settings.world import load_data
from tests.flower.nodes import six


def test_a_users_own_loss_decides_its_ballot(tmp_path: Path) -> None:
    experiment = six(out=str(tmp_path / "run"))
    write_shares(load_data(experiment), experiment.model, tmp_path)

    class Norm(FiledTask):
        def loss(self, module: torch.nn.Module, _images: torch.Tensor, _labels: torch.Tensor) -> float:
            return -float(sum(p.abs().sum() for p in module.parameters()))

    worker = Worker(Norm(str(tmp_path)), Ask("vote"), {})
    small, large = (np.full(650, value, dtype=np.float32) for value in (0.1, 3.0))
    assert worker.ballot([worker.loss(small), worker.loss(large)]) == (1,)
