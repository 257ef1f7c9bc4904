"""lidfl: federated learning that survives a malicious majority (LiD-FL).

| name | what it is |
|---|---|
| `Experiment`, `run` | the settings of a run, and running it |
| `RunDirectory`, `pick` | reading a run, and choosing a model from its list as a client does |
| `ModelList` | the list of models that a server keeps |
| `aggregator`, `proposal`, `election`, `attack`, `vote_attack` | rules by name; as a decorator each adds one |
| `method` | the same for whole methods |
| `dataset`, `partition`, `model` | the same for data and models |
| `LidflError` | what is raised when the user can mend it |
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lidfl.adversaries.attacks import attack
    from lidfl.adversaries.vote_attacks import vote_attack
    from lidfl.data import dataset
    from lidfl.data.partitions import partition
    from lidfl.errors import LidflError
    from lidfl.learning.models import model
    from lidfl.methods.aggregators import aggregator
    from lidfl.methods.elections import election
    from lidfl.methods.method import method
    from lidfl.methods.proposals import proposal
    from lidfl.protocol import ModelList
    from lidfl.runs.directory import RunDirectory
    from lidfl.runs.picking import pick
    from lidfl.settings.experiment import Experiment
    from lidfl.simulation.simulator import run

    __version__: str

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
    "method",
    "model",
    "partition",
    "pick",
    "proposal",
    "run",
    "vote_attack",
]

_HOME = {
    "Experiment": "lidfl.settings.experiment",
    "LidflError": "lidfl.errors",
    "ModelList": "lidfl.protocol",
    "RunDirectory": "lidfl.runs.directory",
    "aggregator": "lidfl.methods.aggregators",
    "attack": "lidfl.adversaries.attacks",
    "dataset": "lidfl.data",
    "election": "lidfl.methods.elections",
    "method": "lidfl.methods.method",
    "model": "lidfl.learning.models",
    "partition": "lidfl.data.partitions",
    "pick": "lidfl.runs.picking",
    "proposal": "lidfl.methods.proposals",
    "run": "lidfl.simulation.simulator",
    "vote_attack": "lidfl.adversaries.vote_attacks",
}
"""Where each name lives. It is imported when first used: a federation starts a process for every message."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("lidfl")
    if name not in _HOME:
        raise AttributeError(f"module 'lidfl' has no attribute '{name}'")
    globals()[name] = found = getattr(import_module(_HOME[name]), name)
    return found
