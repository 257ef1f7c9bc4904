"""A node's own work."""

from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from lidfl.flower.codec import Ask, Work
from lidfl.flower.local.shares import FiledTask, write_shares
from lidfl.flower.worker import Worker
from lidfl.methods.deploying import joined
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


WORK = Work(seed=3, steps=4, batch_size=8, learning_rate=0.1, momentum=0.5)


class Twice(FiledTask):
    """The usual loss, twice as large."""

    def loss(self, module: torch.nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return 2 * torch.nn.functional.cross_entropy(module(inputs), labels)


class Plain(FiledTask):
    """An optimiser of its own: a step against the sign of the gradient."""

    def optimizer(self, parameters: list[torch.nn.Parameter], rate: float, _: float) -> torch.optim.Optimizer:
        return torch.optim.Rprop(parameters, lr=rate, step_sizes=(rate, rate))


@pytest.fixture
def folder(tmp_path: Path) -> str:
    experiment = six(out=str(tmp_path / "run"))
    write_shares(load_data(experiment), experiment.model, tmp_path)
    return str(tmp_path)


def test_a_users_own_loss_is_what_training_makes_small(folder: str) -> None:
    """Twice the loss is twice the gradient, which is the usual loss with twice the learning rate."""
    start = np.zeros(650, dtype=np.float32)
    quick = Work(seed=3, steps=4, batch_size=8, learning_rate=0.2, momentum=0.5)
    usual = Worker(FiledTask(folder), Ask("train", 1, 2, work=quick), {}).train(start)
    own = Worker(Twice(folder), Ask("train", 1, 2, work=WORK), {}).train(start)
    assert np.abs(usual).max() > 0.01
    assert own == pytest.approx(usual, abs=1e-6)


def test_a_users_own_optimiser_takes_the_steps(folder: str) -> None:
    update = Worker(Plain(folder), Ask("train", 1, 2, work=WORK), {}).train(np.zeros(650, dtype=np.float32))
    steps = np.abs(update[np.abs(update) > 1e-6]) / WORK.learning_rate
    assert steps == pytest.approx(np.round(steps), abs=1e-4), "each step has the same length"


def test_by_a_users_own_loss_too_training_alone_is_taken_where_the_list_is_worse(folder: str) -> None:
    """A loss that is one number has no spread: what is lower is better, if there are images enough behind it."""
    worker = Worker(Twice(folder), Ask("vote", 1, 2, work=WORK), {})
    useless = torch.full((1, 650), 50.0).cumsum(1)
    taken = joined(useless, worker, rounds=2)
    assert worker.losses(taken[None])[0] < worker.losses(useless)[0]
    assert len(worker.values(useless)[0]) == len(worker.validation[1]) >= 10
