"""A Flower app of the user's own: what it plays, whether its nodes may attack, which model a node takes."""

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lidfl.errors import LidflError
from lidfl.flower.answers import work_of
from lidfl.flower.client import ListClient, Task
from lidfl.flower.codec import Ask
from lidfl.flower.manifest import read_manifest
from lidfl.flower.server import ListServer, read_run_config
from lidfl.flower.worker import Worker
from lidfl.methods.deploying import deploy as deploy_rules
from lidfl.runs.directory import RunDirectory
from lidfl.runs.picking import Choice, check_client, judged_by, write_choice
from lidfl.settings.experiment import Experiment

NEEDED = ("num-clients", "out", "resume")
"""What the run config of an app must list, so that it can be told how many nodes there are and where to write."""


@dataclass(frozen=True)
class OwnApp:
    """A Flower app in a folder."""

    folder: Path
    experiment: Experiment
    """What it plays with the settings that were given."""
    config: dict[str, Any]
    """Those settings, as its run config takes them."""
    task: Task
    """The user's model and data."""
    testing: bool
    """Whether its nodes misbehave when their config says so."""


def read_app(folder: Path, settings: Mapping[str, Any]) -> OwnApp:
    """Load an app and give it settings; each must be one that its pyproject.toml lists."""
    manifest = read_manifest(folder)
    config = {name.replace("_", "-"): value for name, value in settings.items()}
    for name in (*NEEDED, *config):
        if name not in manifest.config:
            raise LidflError(
                f"{folder / 'pyproject.toml'} does not list '{name}' under [tool.flwr.app.config]; add it"
            )
    server, client = _load(folder, manifest.server), _load(folder, manifest.client)
    if not isinstance(server, ListServer) or not isinstance(client, ListClient):
        raise LidflError(f"{folder} is not made of lidfl.flower.server_app and client_app; see lidfl init-flower")
    config["out"] = config.get("out") or manifest.config["out"] or f"runs/{folder.resolve().name}"
    experiment, _ = read_run_config(server.experiment, {**manifest.config, **config})
    return OwnApp(folder, experiment, config, client.task, client.testing)


def pick_from(
    run: Path | str, app: OwnApp, *, client: int, out: Path | str | None = None, deploy: str | None = None
) -> Choice:
    """Make of the list of an app's finished run the model that serves one node's data best, and write it.

    By the run's own rule, or another. Accuracies are on the node's validation data; they are not known where the
    task brings a loss of its own.
    """
    directory = RunDirectory(run)
    final, experiment = directory.final_state().models, directory.experiment()
    check_client(experiment, client)
    rule = deploy_rules.resolve(deploy or experiment.deploy)
    ask = Ask("vote", client=client, work=work_of(experiment))
    worker = Worker(app.task, ask, {"partition-id": client, "num-partitions": experiment.num_clients})
    tested = None if hasattr(app.task, "loss") else worker.validation
    default = directory.path / f"client-{client}.safetensors"
    judged = judged_by(rule, worker, final, worker.network, tested, experiment.rounds)
    return write_choice(judged, experiment, Path(out) if out else default)


def _load(folder: Path, reference: str) -> object:
    """What a reference such as package.module:app stands for in an app."""
    module, _, attribute = reference.partition(":")
    sys.path.insert(0, str(folder.resolve()))
    try:
        found: object = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever the user's code may raise
        raise LidflError(f"cannot load {reference} of {folder}: {error}") from error
    finally:
        sys.path.pop(0)
    return found
