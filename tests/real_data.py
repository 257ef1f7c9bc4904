"""Where the real data lies, for the tests that want it; without it they are skipped."""

import os
from pathlib import Path

import pytest

_BESIDE_REPOSITORY = Path(__file__).parents[2] / "shared" / "data"
SHARED_DATA = Path(os.environ.get("LIDFL_DATA") or _BESIDE_REPOSITORY).expanduser()


def needs(name: str) -> pytest.MarkDecorator:
    """Skip a test unless a file or folder of that name is in the data directory."""
    reason = f"no {name}: set LIDFL_DATA to the directory that holds it"
    return pytest.mark.skipif(not (SHARED_DATA / name).exists(), reason=reason)


needs_femnist = needs("femnist_5pct.npz")
needs_leaf = needs("leaf-femnist")
needs_cifar10 = needs("cifar-10-binary.tar.gz")
