"""What the pyproject.toml of a Flower app says; read without loading the app."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lidfl.errors import LidflError
from lidfl.files import read_toml


@dataclass(frozen=True)
class Manifest:
    """What the pyproject.toml of an app says."""

    server: str
    """Where its ServerApp is, as package.module:app."""
    client: str
    """Where its ClientApp is."""
    config: Mapping[str, Any]
    """Its run config, which lists what can be set."""


def read_manifest(folder: Path) -> Manifest:
    """What an app says of itself; refused if the folder holds none."""
    try:
        app = read_toml(folder / "pyproject.toml")["tool"]["flwr"]["app"]
        parts = app["components"]
        return Manifest(parts["serverapp"], parts["clientapp"], app.get("config", {}))
    except (LidflError, KeyError, TypeError) as error:
        raise LidflError(f"{folder} is not a Flower app ({error}); lidfl init-flower writes one") from None
