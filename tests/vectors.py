"""Updates to test with: one client a row."""

from collections.abc import Sequence

import numpy as np
import torch
from hypothesis import strategies as st
from numpy.random import default_rng
from torch import Tensor

from lidfl.types import Updates


def rows(*values: Sequence[float]) -> Updates:
    """A matrix from its rows."""
    return torch.tensor(values, dtype=torch.float32)


def on_a_line(*values: float) -> Updates:
    """One-dimensional updates."""
    return torch.tensor(values, dtype=torch.float32)[:, None]


def normal(count: int, dim: int, seed: int) -> Updates:
    """Rows of standard normal entries: no two distances are the same."""
    return torch.from_numpy(default_rng(seed).standard_normal((count, dim)).astype(np.float32))


def scattered(max_count: int = 8) -> st.SearchStrategy[Updates]:
    """Rows in general position."""
    return st.builds(normal, st.integers(1, max_count), st.integers(1, 5), st.integers(0, 2**32))


def gridded(max_count: int = 8) -> st.SearchStrategy[Updates]:
    """Rows of few small integers: equal rows and equal distances abound, and float arithmetic is exact."""
    dims = st.integers(1, 3)
    return dims.flatmap(
        lambda dim: st.lists(
            st.lists(st.integers(-3, 3), min_size=dim, max_size=dim), min_size=1, max_size=max_count
        )
    ).map(lambda matrix: torch.tensor(matrix, dtype=torch.float32))


def close(one: Tensor, other: Tensor, tolerance: float = 1e-5) -> bool:
    """Whether two tensors agree up to rounding."""
    return torch.allclose(one, other, rtol=tolerance, atol=tolerance)
