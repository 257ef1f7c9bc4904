"""What is refused before round one: each check raises an error of one line that names the fix."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from lidfl.adversaries.attacks import attack
from lidfl.adversaries.vote_attacks import vote_attack
from lidfl.data import dataset
from lidfl.data.partitions import partition
from lidfl.data.splits import parse_split
from lidfl.errors import LidflError
from lidfl.learning import models
from lidfl.learning.judges import judge
from lidfl.methods.deploying import deploy
from lidfl.methods.elections import election
from lidfl.methods.method import LIST_SETTINGS, SERVER_DATA, resolve_method
from lidfl.methods.proposals import pipelines_of, resolve_proposals

if TYPE_CHECKING:
    from lidfl.settings.experiment import Experiment

ENGINE_NAMES = ["auto", "linear", "loop", "native", "sparse", "vmap"]
CHOICES = {"groups": ("one", "all"), "parent": ("uniform", "favourite"), "engine": ENGINE_NAMES} | {
    "absent": ("both", "honest", "byzantine")
}
AT_LEAST_ONE = (
    "num_clients",
    "rounds",
    "local_steps",
    "batch_size",
    "eval_every",
    "checkpoint_every",
    "candidates",
)
MOST = 1_000_000_000
"""No run has so many of anything; beyond 2⁶³ numbers would not even fit where they go."""
LONGEST_LIST = 100_000
"""Models that a server may be asked to keep."""
LONGEST_NAME = 200
"""Bytes; file systems take 255, and a run's seed and our endings need some."""
FASTEST = 1e38
"""The largest learning rate that float32 holds."""


def check_type(name: str, kind: Any, value: Any) -> None:
    """Refuse a value of the wrong type."""
    if value is not None and type(value) is not kind:
        raise LidflError(f"{name} must be {getattr(kind, '__name__', kind)}, not {value!r}")
    if isinstance(value, str) and any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in value):
        raise LidflError(f"{name} {value!r} holds what is no letter, and no file can record it; leave that out")


def check_numbers(experiment: Experiment) -> None:
    """Refuse numbers out of range."""
    for name in AT_LEAST_ONE:
        if getattr(experiment, name) < 1:
            raise LidflError(f"{name} must be at least 1, not {getattr(experiment, name)}")
        if getattr(experiment, name) > MOST:
            raise LidflError(f"{name} must be at most {MOST:,}, not {getattr(experiment, name)}")
    for name in ("voters", "workers"):
        if not 0 <= getattr(experiment, name) <= experiment.num_clients:
            raise LidflError(f"{name} must be from 0 (all) to num_clients, {experiment.num_clients}")
    if not 0 <= experiment.byzantine_fraction < 1:
        raise LidflError(f"byzantine_fraction must be in [0, 1), not {experiment.byzantine_fraction}")
    assumed = experiment.assumed_byzantine_fraction
    if not (assumed == -1 or 0 <= assumed < 1):
        raise LidflError(f"assumed_byzantine_fraction must be in [0, 1), or -1 for what it is, not {assumed}")
    if not 0 < experiment.availability <= 1:
        raise LidflError(f"availability must be in (0, 1], not {experiment.availability}")
    if not (experiment.reach >= 0 and math.isfinite(experiment.reach)):
        raise LidflError(f"reach must be 0 (no bound) or more, not {experiment.reach}")
    if not 0 <= experiment.lookahead <= MOST:
        raise LidflError(f"lookahead must be from 0 to {MOST:,} steps, not {experiment.lookahead}")
    if not 0 < experiment.learning_rate <= FASTEST:
        raise LidflError(f"learning_rate must be positive and at most {FASTEST}, not {experiment.learning_rate}")
    if not 0 <= experiment.momentum < 1:
        raise LidflError(f"momentum must be in [0, 1), not {experiment.momentum}")


def check_rivals(experiment: Experiment) -> None:
    """Refuse numbers out of range, or without effect, that only some methods heed."""
    if not 0 <= experiment.client_momentum < 1:
        raise LidflError(f"client_momentum must be in [0, 1), not {experiment.client_momentum}")
    if experiment.churn < 0:
        raise LidflError(f"churn must be 0 (never) or more rounds, not {experiment.churn}")
    if experiment.server_samples < 0:
        raise LidflError(f"server_samples must be 0 (as a client has) or more, not {experiment.server_samples}")
    if not 0 <= experiment.server_bias <= 1:
        raise LidflError(f"server_bias must be in [0, 1], not {experiment.server_bias}")
    if experiment.client_momentum and not experiment.plays.momentum:
        raise LidflError(f"client_momentum goes with an aggregator, such as cwm, not with {experiment.method}")
    neutral = {setting.name: setting.metadata["neutral"] for setting in fields(experiment)}
    for name in ("server_samples", "server_bias"):
        if experiment.plays.needs != SERVER_DATA and getattr(experiment, name) != neutral[name]:
            raise LidflError(
                f"{name} goes with fltrust, fedgreed, zeno, semi_verified, not with {experiment.method}"
            )


def check_names(experiment: Experiment) -> None:
    """Look every name up once, so that a slip is reported before round one."""
    dataset.resolve(experiment.dataset)
    partition.resolve(experiment.partition)
    attack.resolve(experiment.attack)
    vote_attack.resolve(experiment.vote_attack)
    election.resolve(experiment.election)
    judge.resolve(experiment.judge)
    deploy.resolve(experiment.deploy)
    models.resolve(experiment.model)
    parse_split(experiment.split)
    for name, choices in CHOICES.items():
        if getattr(experiment, name) not in choices:
            raise LidflError(f"unknown {name} '{getattr(experiment, name)}'; choose from {', '.join(choices)}")
    resolve_proposals(experiment.proposal)
    for pipeline in pipelines_of(experiment.proposal):
        pipeline.refuse_memory()
    resolve_method(experiment.method)
    check_device(experiment.device)


def check_device(name: str) -> None:
    """Refuse what torch does not know; for the processor there is no need to ask it."""
    if name == "cpu":
        return
    import torch

    try:
        torch.device(name)
    except RuntimeError:
        raise LidflError(f"unknown device '{name}'; choose cpu, cuda or cuda:0, …") from None


def check_run_name(name: str) -> None:
    """Refuse a name that is a path: only `out` chooses a place."""
    if name in ("", ".", "..") or PurePath(name).name != name or "\\" in name or "\0" in name:
        raise LidflError(f"name '{name}' is not the name of a folder; to choose a place set out=…")
    if len(name.encode()) > LONGEST_NAME:
        raise LidflError(f"name is {len(name.encode())} bytes long, too long for a folder; set a shorter name=…")


def check_list(experiment: Experiment) -> None:
    """Refuse a list that is too short, and settings that would do nothing."""
    heeds, method = experiment.plays.heeds, experiment.method
    usual = experiment.plays.length(experiment.num_clients, experiment.assumed_honest)
    if "list_size" not in heeds and experiment.list_size != usual:
        raise LidflError(f"list_size goes with method = lidfl; {method} keeps {usual}")
    if experiment.list_size != usual and not 1 <= experiment.list_size <= LONGEST_LIST:
        raise LidflError(f"list_size must be from 1 to {LONGEST_LIST:,}, not {experiment.list_size}")
    if experiment.list_size < experiment.smallest_list and not experiment.unsafe_list:
        raise LidflError(
            f"list_size {experiment.list_size} is too small: with {experiment.assumed_honest} honest of "
            f"{experiment.num_clients} clients a list needs {experiment.smallest_list} models, or the others can "
            "vote all good ones out; to see that happen set unsafe_list=True"
        )
    neutral = {setting.name: setting.metadata["neutral"] for setting in fields(experiment)}
    for name in LIST_SETTINGS:
        if name not in heeds and name != "list_size" and getattr(experiment, name) != neutral[name]:
            raise LidflError(f"{name} goes with method = lidfl; leave it out with {method}")


def check_search(experiment: Experiment) -> None:
    """Refuse a rule that would have to search for too long."""
    workers = experiment.workers or experiment.num_clients
    honest = max(1, workers * experiment.assumed_honest // experiment.num_clients)
    for pipeline in pipelines_of(experiment.plays.aggregate or experiment.proposal):
        pipeline.refuse_endless(workers, honest)


def beyond_range(experiment: Experiment) -> list[str]:
    """What a single model's rule no longer guarantees; what proposes to voters need not guarantee anything."""
    if experiment.plays.aggregate is None or experiment.plays.ideal:
        return []
    (pipeline,) = pipelines_of(experiment.plays.aggregate)
    honest = min(experiment.num_honest, experiment.assumed_honest)
    told = pipeline.caution(experiment.num_clients, honest)
    return [told] if told else []


def refuse_cautions(experiment: Experiment) -> None:
    """Refuse what would only be warned of."""
    for caution in experiment.cautions:
        raise LidflError(f"{caution} (refused by strict=True)")
