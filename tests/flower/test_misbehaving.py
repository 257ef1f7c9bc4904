"""A node that a test makes lie does what its config says, and the rest of its work honestly."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from lidfl.flower.codec import Ask, Work
from lidfl.flower.local.shares import FiledTask, write_shares
from lidfl.flower.misbehaving import Liar
from lidfl.flower.worker import Worker
from lidfl.settings.world import load_data
from tests.flower.nodes import six

START = np.zeros(650, dtype=np.float32)
WORK = Work(seed=3, steps=5, batch_size=8, learning_rate=0.1, momentum=0.5)


class FlippedTask(FiledTask):
    """The same data with the labels that label_flip makes of them."""

    def data(self, partition: int, partitions: int) -> Any:
        (images, labels), validation = super().data(partition, partitions)
        return (images, 9 - labels), validation


@pytest.fixture
def task(tmp_path: Path) -> FiledTask:
    experiment = six(out=str(tmp_path / "run"))
    write_shares(load_data(experiment), experiment.model, tmp_path)
    return FiledTask(str(tmp_path))


def test_a_liar_sends_what_its_attack_makes_of_an_honest_update(task: FiledTask) -> None:
    ask = Ask("train", 2, 1, work=WORK)
    honest = Worker(task, ask, {}).train(START)
    assert np.abs(honest).max() > 0
    assert np.array_equal(Liar(task, ask, {"attack": "sign_flip"}).train(START), -honest)
    assert np.array_equal(Liar(task, ask, {"vote-attack": "worst"}).train(START), honest)


def test_poisoned_labels_are_poisoned_once(task: FiledTask) -> None:
    ask = Ask("train", 2, 1, work=WORK)
    poisoned = Worker(FlippedTask(str(task.folder)), ask, {}).train(START)
    liar = Liar(task, ask, {"attack": "label_flip"})
    assert np.array_equal(liar.train(START), poisoned)
    assert np.array_equal(liar.train(START), poisoned)


def test_a_liar_votes_as_its_config_says(task: FiledTask) -> None:
    losses = [0.3, 0.1, 0.9]
    assert Liar(task, Ask("vote"), {"vote-attack": "worst"}).ballot(losses) == (2,)
    assert Liar(task, Ask("vote"), {"attack": "sign_flip"}).ballot(losses) == (1,)
    assert Liar(task, Ask("choose", ranks=2), {"vote-attack": "random"}).ballot(losses) == (2, 0)
