"""The SuperLink and the SuperNodes of a federation on this machine."""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from time import monotonic, sleep
from typing import TypeAlias

from lidfl.errors import LidflError
from lidfl.flower.local.app import write_experiment_app
from lidfl.flower.local.credentials import make_certificates, make_node_key
from lidfl.flower.local.nursery import write_command
from lidfl.flower.local.processes import START_UP, Processes, free_port, listens
from lidfl.runs.directory import EXPERIMENT, RunDirectory
from lidfl.settings.experiment import Experiment
from lidfl.types import Client

CONNECTION = "here"
"""What Flower's command line calls our SuperLink."""

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
        self.home = Path(tempfile.mkdtemp(prefix="lidfl-federation-"))
        self.app = app
        self.port = free_port()
        self.processes = Processes(self.logs, environment(self.home))

    def __enter__(self) -> "LocalFederation":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End every process of this federation, and remove its keys."""
        self.processes.stop()
        shutil.rmtree(self.home, ignore_errors=True)

    # Preparing

    def claim(self, *, resume: bool = False, overwrite: bool = False) -> None:
        """Make the run directory ready, or refuse; later the server app takes it, which is another process."""
        with self.directory.claimed(self.experiment, resume=resume, overwrite=overwrite):
            self.directory.unfinish()

    def prepare(self) -> None:
        """Write keys, the nodes' data, the app and Flower's settings, and start the nursery."""
        self.logs.mkdir(parents=True, exist_ok=True)
        if not self.insecure:
            make_certificates(self.home)
            for client in range(self.experiment.num_clients):
                make_node_key(self.home, f"node-{client}.key")
        trust = "insecure = true" if self.insecure else f'root-certificates = "{self.home / "ca.crt"}"'
        config = f'[superlink.{CONNECTION}]\naddress = "127.0.0.1:{self.port}"\n{trust}\n'
        (self.home / "config.toml").write_text(config)
        nursery = self.home / "nursery"
        write_command(self.home / "bin", nursery)
        self.processes.start("nursery", sys.executable, "-m", "lidfl.flower.local.nursery", nursery)
        if self.app is None:
            settings = self.directory.path.resolve() / EXPERIMENT
            self.app = write_experiment_app(self.experiment, settings, self.home)

    # Starting

    def up(self) -> None:
        """Start the SuperLink, register the nodes' keys, start the nodes."""
        self.start_link()
        if not self.insecure:
            for client in range(self.experiment.num_clients):
                self.register(self.home / f"node-{client}.key.pub")
        for client in range(self.experiment.num_clients):
            self.start_node(client)

    def start_link(self) -> None:
        """Start the SuperLink and wait until it listens; its state outlives it."""
        secure = ["--enable-supernode-auth", "--ssl-ca-certfile", self.home / "ca.crt"]
        secure += ["--ssl-certfile", self.home / "server.crt", "--ssl-keyfile", self.home / "server.key"]
        where = ["--host", "127.0.0.1", "--port", self.port, "--database", self.home / "state.db"]
        trust = ["--insecure"] if self.insecure else secure
        self.processes.start("superlink", "flower-superlink", *where, *trust)
        until = monotonic() + START_UP
        while not listens(self.port):
            self.processes.check("superlink")
            if monotonic() > until:
                raise LidflError(f"the SuperLink does not come up; see {self.logs / 'superlink.log'}")
            sleep(0.2)

    def register(self, public_key: Path) -> None:
        """Admit a node by its public key."""
        self.flwr("supernode", "register", public_key, CONNECTION)

    def start_node(self, client: Client, key: Path | None = None, port: int | None = None) -> None:
        """Start the SuperNode of a client; one that is to attack is told so in its config."""
        config = {"partition-id": client, "num-partitions": self.experiment.num_clients}
        words = _config_words({**config, **self.liars.get(client, {})})
        key = key or self.home / f"node-{client}.key"
        secure = ["--root-certificates", self.home / "ca.crt", "--auth-supernode-private-key", key]
        where = ["--superlink", f"127.0.0.1:{port or self.port}", "--port", free_port(), "--node-config", words]
        trust = ["--insecure"] if self.insecure else secure
        self.processes.start(f"node-{client}", "flower-supernode", *where, *trust)

    def submit(self, **config: bool | int | float | str) -> str:
        """Start a run of the app; its id."""
        words = _config_words({name.replace("_", "-"): value for name, value in config.items()})
        answer = self.flwr("run", self.app, CONNECTION, "--format", "json", *(["-c", words] if words else []))
        return str(json.loads(answer)["run-id"])

    def flwr(self, *arguments: object) -> str:
        """Run a command of Flower's to its end; what it prints."""
        return self.processes.finish("flwr", *arguments)


def _config_words(config: dict[str, bool | int | float | str]) -> str:
    """A config as Flower's command line takes it."""
    return " ".join(f"{name}={json.dumps(value)}" for name, value in config.items())


def environment(home: Path) -> dict[str, str]:
    """The environment of every process: ours, our commands first, and Flower neither fetches nor reports."""
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    quiet |= {"FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1"}
    speed = {"OMP_NUM_THREADS": "1", "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2"}
    path = [str(home / "bin"), str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    ours = {"PATH": os.pathsep.join(path), "FLWR_HOME": str(home)}
    return speed | dict(os.environ) | quiet | ours
