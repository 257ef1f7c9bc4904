"""A node's own model, in a file of the node: after every vote, the candidate that does best on its own data.

A node is shown all candidates when it votes, so nothing has to be fetched or copied at the end. What is written is
a state dict, and in its metadata the run, the round, the loss, and the loss of every candidate. What is best by a
node's own validation data need not be in the next list; it is still what that node would choose.
"""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lidfl.flower.codec import Ask, Vector

if TYPE_CHECKING:
    from lidfl.learning.parameters import Network

VARIABLE = "LIDFL_NODE_MODEL"
"""The environment variable that names the file; `lidfl node` sets it."""


def keep_best(
    network: "Network", ask: Ask, vectors: Mapping[str, Vector], losses: Mapping[str, float], run: int
) -> None:
    """Write the best of the candidates that are at hand, if the node wants it."""
    path = os.environ.get(VARIABLE)
    known = [name for name in ask.models if name in vectors and math.isfinite(losses[name])]
    if not path or not known:
        return
    import torch
    from safetensors.torch import save

    from lidfl.files import write_atomically

    best = min(known, key=lambda name: losses[name])
    told = {"run": run, "round": ask.round_index + 1, "loss": losses[best], "losses": [losses[n] for n in known]}
    content = save(network.state_dict(torch.from_numpy(vectors[best])), {"lidfl": json.dumps(told)})
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_atomically(Path(path), content)
