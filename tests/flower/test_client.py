"""A client's app: it ends in time, imports little, and misbehaves only when a test asks for it."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from lidfl import LidflError
from lidfl.flower import client_app
from lidfl.flower.client import deadline, worker_for
from lidfl.flower.codec import Ask
from lidfl.flower.local.shares import FiledTask, write_shares
from lidfl.settings.world import load_data
from tests.flower.nodes import six


def test_a_client_that_takes_too_long_ends_by_itself() -> None:
    def hang() -> None:
        with deadline(0.05):
            while True:
                pass

    with pytest.raises(TimeoutError, match="not done"):
        hang()


def test_misbehaviour_is_an_option_for_tests_that_must_be_asked_for(tmp_path: Path) -> None:
    experiment = six(out=str(tmp_path / "run"))
    write_shares(load_data(experiment), experiment.model, tmp_path)
    task = FiledTask(str(tmp_path))
    with pytest.raises(LidflError, match="testing=True"):
        worker_for(task, Ask("vote"), {"attack": "sign_flip"}, testing=False)
    with pytest.raises(LidflError, match="accomplices"):
        worker_for(task, Ask("vote"), {"attack": "lie"}, testing=True)


def test_a_task_without_its_functions_is_one_clear_line() -> None:
    with pytest.raises(LidflError, match=r"model\(\) and data"):
        client_app(object())


def test_a_client_app_imports_torch_only_when_there_is_something_to_compute() -> None:
    code = "import sys, lidfl.flower.client; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_client_leaves_the_process_as_it_was() -> None:
    assert float(torch.tensor(1e-40) * 1) > 0, "an earlier test left denormals flushed to 0"
