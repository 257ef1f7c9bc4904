"""What all tests share."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

# How long an example takes depends on the machine and on what else it does: no test fails for that.
settings.register_profile("lidfl", deadline=None)
settings.load_profile("lidfl")


@pytest.fixture(autouse=True, scope="session")
def no_waiting_for_disks() -> Iterator[None]:
    """A test can kill a process and fill a disk, not cut the power: what is written need not reach the platter.

    Processes that tests start wait for the disk as always.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _descriptor: None)
        yield
