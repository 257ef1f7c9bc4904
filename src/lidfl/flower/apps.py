"""A Flower app of the user's own: what it plays, whether its nodes may attack, which model a node takes."""

import importlib
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lidfl.config import Experiment
from lidfl.errors import LidflError
from lidfl.flower.client import ListClient, Task
from lidfl.flower.server import ListServer, read_run_config
from lidfl.flower.worker import judge
from lidfl.parameters import Network
from lidfl.picking import Choice, accuracy, check_client, take
from lidfl.rundir import RunDirectory

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
    """Whether its nodes attack when their config says so."""


def read_app(folder: Path, settings: Mapping[str, Any]) -> OwnApp:
    """Load an app and give it settings; each must be one that its pyproject.toml lists."""
    described = _describe(folder)
    listed = described.get("config", {})
    config = {name.replace("_", "-"): value for name, value in settings.items()}
    for name in (*NEEDED, *config):
        if name not in listed:
            raise LidflError(
                f"{folder / 'pyproject.toml'} does not list '{name}' under [tool.flwr.app.config]; add it"
            )
    server, client = (_load(folder, described["components"][part]) for part in ("serverapp", "clientapp"))
    if not isinstance(server, ListServer) or not isinstance(client, ListClient):
        raise LidflError(f"{folder} is not made of lidfl.flower.server_app and client_app; see lidfl init-flower")
    config["out"] = config.get("out") or listed["out"] or f"runs/{folder.resolve().name}"
    experiment, _ = read_run_config(server.experiment, listed | config)
    return OwnApp(folder, experiment, config, client.task, client.testing)


def pick_from(run: Path | str, app: OwnApp, *, client: int, out: Path | str | None = None) -> Choice:
    """Choose the model of an app's finished run that does best on one node's validation data, and write it.

    Accuracies are on the same data; they are not known where the task brings a loss of its own.
    """
    directory = RunDirectory(run)
    final, experiment = directory.final_state().models, directory.experiment()
    check_client(experiment, client)
    network = Network(app.task.model())
    _, validation = app.task.data(client, experiment.num_clients)
    losses = np.array([judge(app.task, network, row, validation) for row in final.parameters])
    known = not hasattr(app.task, "loss")
    hits = [accuracy(network, row, validation) if known else np.nan for row in final.parameters]
    default = directory.path / f"client-{client}.safetensors"
    return take(network, final, losses, np.array(hits), experiment, Path(out) if out else default)


def _describe(folder: Path) -> dict[str, Any]:
    try:
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
        described: dict[str, Any] = project["tool"]["flwr"]["app"]
        described["components"]["serverapp"], described["components"]["clientapp"]
    except (OSError, KeyError, tomllib.TOMLDecodeError) as error:
        raise LidflError(f"{folder} is not a Flower app ({error}); lidfl init-flower writes one") from None
    return described


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
