"""lidfl: federated learning that survives a malicious majority (LiD-FL).

| name | what it is |
|---|---|
| `Experiment`, `run` | the settings of a run, and running it |
| `RunDirectory`, `pick` | reading a run, and choosing a model from its list as a client does |
| `ModelList` | the list of models that a server keeps |
| `aggregator`, `proposal`, `election`, `attack`, `vote_attack` | rules by name; as a decorator each adds one |
| `dataset`, `partition`, `model` | the same for data and models |
| `LidflError` | what is raised when the user can mend it |
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lidfl.aggregators import aggregator
    from lidfl.attacks import attack
    from lidfl.config import Experiment
    from lidfl.datasets import dataset
    from lidfl.elections import election
    from lidfl.errors import LidflError
    from lidfl.models import model
    from lidfl.partitions import partition
    from lidfl.picking import pick
    from lidfl.protocol import ModelList, proposal
    from lidfl.rundir import RunDirectory
    from lidfl.simulation import run
    from lidfl.vote_attacks import vote_attack

__version__ = version("lidfl")

__all__ = [
    "Experiment",
    "LidflError",
    "ModelList",
    "RunDirectory",
    "__version__",
    "aggregator",
    "attack",
    "dataset",
    "election",
    "model",
    "partition",
    "pick",
    "proposal",
    "run",
    "vote_attack",
]

_HOME = {
    "Experiment": "lidfl.config",
    "LidflError": "lidfl.errors",
    "ModelList": "lidfl.protocol",
    "RunDirectory": "lidfl.rundir",
    "aggregator": "lidfl.aggregators",
    "attack": "lidfl.attacks",
    "dataset": "lidfl.datasets",
    "election": "lidfl.elections",
    "model": "lidfl.models",
    "partition": "lidfl.partitions",
    "pick": "lidfl.picking",
    "proposal": "lidfl.protocol",
    "run": "lidfl.simulation",
    "vote_attack": "lidfl.vote_attacks",
}
"""Where each name lives. It is imported when first used: a federation starts a process for every message."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'lidfl' has no attribute '{name}'")
    globals()[name] = found = getattr(import_module(_HOME[name]), name)
    return found
