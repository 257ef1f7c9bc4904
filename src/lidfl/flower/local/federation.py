"""The SuperLink and the SuperNodes of a federation on this machine."""

import json
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, sleep
from typing import TypeAlias

from lidfl.errors import LidflError
from lidfl.flower.credentials import make_certificates, make_node_key
from lidfl.flower.hosting import CONNECTION, START_UP, connection, environment, free_port, listens, private_folder
from lidfl.flower.local.app import write_experiment_app
from lidfl.flower.local.processes import Processes
from lidfl.flower.nursery import write_command
from lidfl.flower.registration import Registrar
from lidfl.flower.signing import make_server_key
from lidfl.runs.directory import RunDirectory
from lidfl.runs.resuming import EXPERIMENT
from lidfl.settings.experiment import Experiment
from lidfl.types import Client

MORE = ("lidfl.flower.local.shares", "lidfl.flower.misbehaving")
"""What client apps of an experiment import besides."""

Liars: TypeAlias = Mapping[Client, Mapping[str, str]]
"""The nodes that attack, and what their config says of how."""


class LocalFederation:
    """A federation on loopback; a context that ends all its processes."""

    def __init__(
        self,
        experiment: Experiment,
        *,
        insecure: bool = False,
        app: Path | None = None,
        liars: Liars | None = None,
    ) -> None:
        self.experiment = experiment
        self.insecure = insecure
        self.liars = liars or {}
        self.directory = RunDirectory(experiment.out)
        self.logs = self.directory.path / "logs"
        self._stack = ExitStack()
        self.home = self._stack.enter_context(private_folder("lidfl-federation-"))
        self.app = app
        self.port = free_port()
        self.processes = Processes(self.logs, environment(self.home, self.home / "bin"))

    def __enter__(self) -> "LocalFederation":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End every process of this federation, and remove its keys."""
        self.processes.stop()
        self._stack.close()

    # Preparing

    def claim(self, *, resume: bool = False, overwrite: bool = False) -> None:
        """Make the run directory ready, or refuse; later the server app takes it, which is another process."""
        with self.directory.claimed(self.experiment, resume=resume, overwrite=overwrite):
            self.directory.unfinish()

    def prepare(self) -> None:
        """Write keys, the nodes' data, the app and Flower's settings, and start the nursery."""
        self.logs.mkdir(parents=True, exist_ok=True)
        make_server_key(self.home / "signing.key")
        if not self.insecure:
            make_certificates(self.home)
            for client in range(self.experiment.num_clients):
                make_node_key(self.home, f"node-{client}.key")
        write_command(self.home / "bin", self.nursery)
        self.processes.start("nursery", sys.executable, "-m", "lidfl.flower.nursery", self.nursery, *MORE)
        if self.app is None:
            settings = self.directory.path.resolve() / EXPERIMENT
            self.app = write_experiment_app(self.experiment, settings, self.home)

    @property
    def nursery(self) -> Path:
        """Where client apps are born."""
        return self.home / "nursery"

    @property
    def ca(self) -> Path | None:
        """Who vouches for the SuperLink; nobody if it is insecure."""
        return None if self.insecure else self.home / "ca.crt"

    # Starting

    def up(self) -> None:
        """Start the SuperLink, register the nodes' keys, start the nodes."""
        self.start_link()
        if not self.insecure:
            self.register(*(self.home / f"node-{client}.key.pub" for client in range(self.experiment.num_clients)))
        for client in range(self.experiment.num_clients):
            self.start_node(client)

    def start_link(self) -> None:
        """Start the SuperLink and wait until it listens; its state outlives it."""
        self.write_connection()
        words = ["server", "up", self.home, "--port", self.port, *(["--insecure"] if self.insecure else [])]
        self.processes.start("superlink", sys.executable, "-m", "lidfl", *words)
        until = monotonic() + START_UP
        while not listens(self.port):
            self.processes.check("superlink")
            if monotonic() > until:
                raise LidflError(f"the SuperLink does not come up; see {self.logs / 'superlink.log'}")
            sleep(0.2)

    def write_connection(self) -> None:
        """Let Flower's commands find our SuperLink."""
        (self.home / "config.toml").write_text(connection(self.port, self.ca))

    def register(self, *public_keys: Path) -> None:
        """Admit nodes by their public keys."""
        with Registrar(f"127.0.0.1:{self.port}", self.ca) as registrar:
            registrar.set_roll(public_keys, remove=False)

    def start_node(self, client: Client, key: Path | None = None, port: int | None = None) -> None:
        """Start the SuperNode of a client; one that is to attack is told so in its config."""
        key = key or self.home / f"node-{client}.key"
        words = ["node", "up", self.home, "--server", f"127.0.0.1:{port or self.port}", "--nursery", self.nursery]
        words += ["--key", key, "--partition", client, "--partitions", self.experiment.num_clients]
        words += ["--config", _config_words(self.liars.get(client, {}))] if client in self.liars else []
        words += ["--model", self.directory.path / "taken" / f"client-{client}.safetensors"]
        trust = ["--insecure"] if self.insecure else []
        self.processes.start(f"node-{client}", sys.executable, "-m", "lidfl", *words, *trust)

    def submit(self, **config: bool | int | float | str) -> str:
        """Start a run of the app; its id."""
        words = _config_words({name.replace("_", "-"): value for name, value in config.items()})
        answer = self.flwr("run", self.app, CONNECTION, "--format", "json", *(["-c", words] if words else []))
        return str(json.loads(answer)["run-id"])

    def flwr(self, *arguments: object) -> str:
        """Run a command of Flower's to its end; what it prints."""
        return self.processes.finish("flwr", *arguments)


def _config_words(config: Mapping[str, bool | int | float | str]) -> str:
    """A config as Flower's command line takes it."""
    return " ".join(f"{name}={json.dumps(value)}" for name, value in config.items())
