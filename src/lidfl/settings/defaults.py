"""The settings that depend on the data set and the model, unless the user says otherwise."""

from typing import Any

Settings = dict[str, Any]
"""Settings by name."""

SMALL: Settings = dict(num_clients=20, partition="iid", split="36:9:5", model="lr", rounds=100) | dict(
    local_steps=10, batch_size=16, learning_rate=0.01, momentum=0.9, eval_every=5
)
"""Defaults for the embedded digits and for a user's own data."""

FEMNIST: Settings = dict(num_clients=35, partition="iid:sizes=lognormal", split="36:9:5", model="lr") | dict(
    rounds=1500, local_steps=25, batch_size=32, learning_rate=0.01, momentum=0.9, eval_every=10
)
"""The paper's set-up on FEMNIST (section 5.1, appendix B.3)."""

CIFAR10: Settings = dict(num_clients=35, partition="iid", split="4:1:1", model="cnn", rounds=2000) | dict(
    local_steps=20, batch_size=32, learning_rate=0.01, momentum=0.9, eval_every=20
)
"""The paper's set-up on CIFAR-10, for CIFAR-100 too."""


LONG_ROUNDS: dict[str, Settings] = {
    "femnist": dict(rounds=25, local_steps=150, eval_every=25),
    "cifar10": dict(rounds=50, local_steps=100, eval_every=25),
    "cifar100": dict(rounds=50, local_steps=100, eval_every=25),
}
"""Where everyone trains in each round, few long ones: a vote tells apart what differs by more than data show."""
SMALL_LONG_ROUNDS: Settings = dict(rounds=20, local_steps=50, eval_every=10)


def defaults(dataset_name: str, model_name: str | None = None, method_name: str = "lidfl") -> Settings:
    """The settings for a data set, a model and a method."""
    settings = {"femnist": FEMNIST, "cifar10": CIFAR10, "cifar100": CIFAR10}.get(dataset_name, SMALL)
    if (dataset_name, model_name) == ("femnist", "cnn"):
        settings = settings | {"batch_size": 64}
    if method_name == "lidfl-ranked":
        settings = settings | LONG_ROUNDS.get(dataset_name, SMALL_LONG_ROUNDS)
    return settings
