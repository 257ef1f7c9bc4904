"""An app of the user's own, to be tried on this machine: what it plays, and whether its nodes may attack."""

import importlib
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lidfl.config import Experiment
from lidfl.errors import LidflError
from lidfl.flower.client import ListClient
from lidfl.flower.server import ListServer, read_run_config

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
    return OwnApp(folder, experiment, config, client.testing)


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
