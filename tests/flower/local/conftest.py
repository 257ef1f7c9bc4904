"""What all tests of a local federation share."""

import os
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def as_many_threads_as_a_node() -> Iterator[None]:
    """Let a simulation have as many threads as the processes that it is compared with: last bits depend on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    yield
    torch.set_num_threads(before)
