"""lidfl: federated learning that survives a malicious majority (LiD-FL).

| name | what it is |
|---|---|
| `Experiment`, `run` | the settings of a run, and running it |
| `Run`, `Progress`, `STOP` | what `run` returns, what callbacks are shown, and what ends a run early |
| `RunDirectory`, `pick` | reading a run, and choosing a model from its list as a client does |
| `ModelList` | the list of models that a server keeps |
| `aggregator`, `preaggregator`, `proposal`, `election` | rules by name; as a decorator each adds one |
| `judge`, `deploy` | the same for how a client judges models, and what it makes of the list |
| `attack`, `vote_attack` | the same for what Byzantine clients do |
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
    from lidfl.learning.judges import judge
    from lidfl.learning.models import model
    from lidfl.methods.aggregators import aggregator
    from lidfl.methods.deploying import deploy
    from lidfl.methods.elections import election
    from lidfl.methods.method import method
    from lidfl.methods.preaggregators import preaggregator
    from lidfl.methods.proposals import proposal
    from lidfl.protocol import ModelList
    from lidfl.python.result import Run
    from lidfl.python.running import run
    from lidfl.runs.directory import RunDirectory
    from lidfl.runs.loop import STOP, Progress
    from lidfl.runs.picking import pick
    from lidfl.settings.experiment import Experiment

    __version__: str

__all__ = [
    "STOP",
    "Experiment",
    "LidflError",
    "ModelList",
    "Progress",
    "Run",
    "RunDirectory",
    "__version__",
    "aggregator",
    "attack",
    "dataset",
    "deploy",
    "election",
    "judge",
    "method",
    "model",
    "partition",
    "pick",
    "preaggregator",
    "proposal",
    "run",
    "vote_attack",
]

_HOME = {
    "Experiment": "lidfl.settings.experiment",
    "LidflError": "lidfl.errors",
    "ModelList": "lidfl.protocol",
    "Progress": "lidfl.runs.loop",
    "Run": "lidfl.python.result",
    "RunDirectory": "lidfl.runs.directory",
    "STOP": "lidfl.runs.loop",
    "aggregator": "lidfl.methods.aggregators",
    "attack": "lidfl.adversaries.attacks",
    "dataset": "lidfl.data",
    "deploy": "lidfl.methods.deploying",
    "election": "lidfl.methods.elections",
    "judge": "lidfl.learning.judges",
    "method": "lidfl.methods.method",
    "model": "lidfl.learning.models",
    "partition": "lidfl.data.partitions",
    "pick": "lidfl.runs.picking",
    "preaggregator": "lidfl.methods.preaggregators",
    "proposal": "lidfl.methods.proposals",
    "run": "lidfl.python.running",
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


def __dir__() -> list[str]:
    """Everything that is public, loaded or not."""
    return sorted(__all__)
