"""Tensor shapes and plain types, named once."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Client: TypeAlias = int
"""A client's number, 0 … num_clients - 1."""

Parameters: TypeAlias = "Tensor"
"""One model: a flat float vector, shape (dim,)."""

Models: TypeAlias = "Tensor"
"""One model a row, shape (models, dim)."""

Updates: TypeAlias = "Tensor"
"""One update a row, shape (updates, dim)."""

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
"""The tensors that a model's vector is made of, in order: names and shapes."""

Losses: TypeAlias = NDArray[np.float64]
"""Mean validation losses, shape (voters, candidates); +inf where a loss is not finite."""

Position: TypeAlias = int
"""A model's place in a ModelList, 0 … len - 1, in order of birth: the oldest comes first."""

Ballot: TypeAlias = tuple[Position, ...]
"""Positions of candidates, the most liked first; a single choice is a ballot of length one."""
