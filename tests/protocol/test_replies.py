"""Where replies enter: what a mutant of the check would let through."""

import pytest
import torch

from lidfl.protocol import ModelList, Trained
from lidfl.protocol.replies import valid_updates


@pytest.mark.parametrize(("update", "used"), [(3e38, False), (-3e38, True)])
def test_an_update_is_judged_by_the_model_that_it_leads_to(update: float, used: bool) -> None:
    """Float32 ends at 3.4e38: the same update takes a model beyond it, or back from it."""
    models = ModelList.initial(torch.full((2,), 3e38), 1)
    valid, rejected = valid_updates([(7, Trained(0, torch.full((2,), update)))], {7: (0,)}, models)
    assert list(valid) == ([7] if used else [])
    assert dict(rejected) == ({} if used else {"not finite": 1})
