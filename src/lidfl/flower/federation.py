"""A whole federation on this machine: keys, a SuperLink, SuperNodes, one run, and nothing left behind.

Every process that is started, and every one that those start, carries a mark in its environment, by which it is
found and ended; should this process be killed, the kernel ends its children, and theirs end by themselves.
"""

import ctypes
import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any, TypeAlias

from lidfl.checkpoint import load_state
from lidfl.config import Experiment
from lidfl.errors import LidflError
from lidfl.flower.apps import OwnApp
from lidfl.flower.credentials import make_certificates, make_node_key
from lidfl.flower.dealt import deal
from lidfl.flower.nursery import write_command
from lidfl.flower.worker import check_attacks
from lidfl.rundir import RunDirectory
from lidfl.simulation import Observer, Progress, Summary
from lidfl.types import Client
from lidfl.world import draw_byzantine, load_data

MARK = "LIDFL_FEDERATION"
CONNECTION = "here"
"""What Flower's command line calls our SuperLink."""
START_UP = 180.0
"""Seconds for a server or a run to come up: several Python processes on a busy machine."""

SERVER_APP = """from pathlib import Path

from lidfl.config import Experiment
from lidfl.flower import server_app
from lidfl.simulator import Simulator

app = server_app(Experiment.from_toml(Path({experiment!r})), audit=Simulator.of)
"""
CLIENT_APP = """from lidfl.flower import client_app
from lidfl.flower.dealt import Dealt

app = client_app(Dealt({data!r}), testing=True)
"""
PROJECT = """[project]
name = "federation"
version = "1.0.0"
description = "An experiment of lidfl on loopback"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "lidfl"

[tool.flwr.app.components]
serverapp = "federation.server_app:app"
clientapp = "federation.client_app:app"

[tool.flwr.app.config]
out = ""
rounds = {rounds}
resume = false
in-flight = 8
deadline = 120.0
wait = 120.0
"""


Liars: TypeAlias = Mapping[Client, Mapping[str, str]]
"""Which nodes attack, and what their config says of how."""


def liars_of(experiment: Experiment) -> Liars:
    """The Byzantine clients of an experiment."""
    behaviour = {"attack": experiment.attack, "vote-attack": experiment.vote_attack}
    if experiment.num_byzantine:
        check_attacks(*behaviour.values())
    return dict.fromkeys(draw_byzantine(experiment), behaviour)


class LocalFederation:
    """The processes of a federation on loopback; a context that ends them all."""

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
        self.liars = liars_of(experiment) if liars is None else liars
        self.directory = RunDirectory(experiment.out)
        self.logs = self.directory.path / "logs"
        self.home = Path(tempfile.mkdtemp(prefix="lidfl-federation-"))
        self.app = app
        self.mark = secrets.token_hex(8)
        self.port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "LocalFederation":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # Preparing

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
        write_command(self.home / "bin", self.home / "nursery")
        self.start("nursery", sys.executable, "-m", "lidfl.flower.nursery", self.home / "nursery")
        if self.app is None:
            self.app = self._write_app()

    def _write_app(self) -> Path:
        data, app = self.home / "data", self.home / "app"
        data.mkdir()
        deal(self.experiment, load_data(self.experiment), data)
        (app / "federation").mkdir(parents=True)
        (app / "pyproject.toml").write_text(PROJECT.format(rounds=self.experiment.rounds))
        (app / "federation" / "__init__.py").write_text("")
        experiment = str(self.directory.path.resolve() / "experiment.toml")
        (app / "federation" / "server_app.py").write_text(SERVER_APP.format(experiment=experiment))
        (app / "federation" / "client_app.py").write_text(CLIENT_APP.format(data=str(data)))
        return app

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
        self.start("superlink", "flower-superlink", *where, *(["--insecure"] if self.insecure else secure))
        until = monotonic() + START_UP
        while not listens(self.port):
            self.check("superlink")
            if monotonic() > until:
                raise LidflError(f"the SuperLink does not come up; see {self.logs / 'superlink.log'}")
            sleep(0.2)

    def register(self, public_key: Path) -> None:
        """Admit a node by its public key."""
        self.flwr("supernode", "register", public_key, CONNECTION)

    def start_node(self, client: Client, key: Path | None = None, port: int | None = None) -> None:
        """Start the SuperNode of a client; one that is Byzantine is told so in its config."""
        config = {"partition-id": client, "num-partitions": self.experiment.num_clients}
        settings = config | dict(self.liars.get(client, {}))
        words = " ".join(f"{name}={json.dumps(value)}" for name, value in settings.items())
        key = key or self.home / f"node-{client}.key"
        secure = ["--root-certificates", self.home / "ca.crt", "--auth-supernode-private-key", key]
        where = ["--superlink", f"127.0.0.1:{port or self.port}", "--port", free_port(), "--node-config", words]
        self.start(f"node-{client}", "flower-supernode", *where, *(["--insecure"] if self.insecure else secure))

    def submit(self, **config: bool | int | float | str) -> str:
        """Start a run of the app; its id."""
        words = " ".join(f"{name.replace('_', '-')}={json.dumps(value)}" for name, value in config.items())
        answer = self.flwr("run", self.app, CONNECTION, "--format", "json", *(["-c", words] if words else []))
        return str(json.loads(answer)["run-id"])

    def start(self, name: str, *command: object) -> None:
        """Start a process that lives until it is stopped; what it prints goes to a log of its name."""
        with (self.logs / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment(),
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )

    def flwr(self, *arguments: object) -> str:
        """Run a command of Flower's to its end."""
        command = ["flwr", *map(str, arguments)]
        done = subprocess.run(
            command, capture_output=True, text=True, env=self.environment(), timeout=START_UP, check=False
        )
        if done.returncode:
            raise LidflError(f"{' '.join(command[:3])} failed: {(done.stdout + done.stderr).strip()[-400:]}")
        return done.stdout

    def environment(self) -> dict[str, str]:
        """The environment of every process: ours, its mark, and nothing that Flower would fetch or report."""
        quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
        quiet |= {"FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1"}
        speed = {"OMP_NUM_THREADS": "1", "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2"}
        path = [str(self.home / "bin"), str(Path(sys.executable).parent), os.environ.get("PATH", "")]
        ours = {"PATH": os.pathsep.join(path), "FLWR_HOME": str(self.home), MARK: self.mark}
        return speed | dict(os.environ) | quiet | ours

    # Watching

    def watch(self, observe: Observer | None) -> Summary:
        """Show rounds as they end, until the run does; its summary."""
        shown, until, running = self._rounds_done(), monotonic() + START_UP, False
        while not (self.directory.path / "summary.json").exists():
            held = is_locked(self.directory.path / "lock")
            if running and not held and not (self.directory.path / "summary.json").exists():
                raise LidflError(f"the server app ended before its time; see {self.logs / 'superlink.log'}")
            if not running and not held and monotonic() > until:
                raise LidflError(f"the server app does not start; see {self.logs / 'superlink.log'}")
            running = running or held
            self.check("superlink")
            shown = self._show(shown, observe)
            sleep(0.3)
        self._show(shown, observe)
        return self.directory.summary()

    def _rounds_done(self) -> int:
        file = self.directory.checkpoint_file
        return load_state(file).rounds_done if file.exists() else 0

    def _show(self, shown: int, observe: Observer | None) -> int:
        done = self._rounds_done()
        if done <= shown:
            return shown
        models = load_state(self.directory.checkpoint_file).models
        for line in list(self.directory.lines())[shown:done]:
            if observe:
                observe(Progress(self.experiment, models, line))
        return done

    def check(self, name: str) -> None:
        """Raise if a process has ended by itself."""
        if self.processes[name].poll() is not None:
            raise LidflError(f"{name} has ended; see {self.logs / f'{name}.log'}")

    # Ending

    def kill(self, name: str) -> None:
        """End a process without a warning, as a fault would; what it started ends by itself."""
        os.killpg(self.processes[name].pid, signal.SIGKILL)
        self.processes[name].wait()

    def stop(self) -> None:
        """End every process of this federation, and remove its keys."""
        for grace, number in ((3.0, signal.SIGTERM), (5.0, signal.SIGKILL)):
            for pid in marked(self.mark):
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            until = monotonic() + grace
            while list(marked(self.mark)) and monotonic() < until:
                for process in self.processes.values():
                    process.poll()
                sleep(0.1)
        for process in self.processes.values():
            process.wait()
        shutil.rmtree(self.home, ignore_errors=True)


@contextmanager
def interrupted_once() -> Iterator[None]:
    """Take the first Ctrl-C and no other: an impatient user must not interrupt the end, which takes seconds."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)

    def interrupt(*_: object) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def marked(mark: str) -> Iterator[int]:
    """The processes that carry a federation's mark."""
    sign = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if sign in (entry / "environ").read_bytes().split(b"\0"):
                    yield int(entry.name)


def is_locked(file: Path) -> bool:
    """Whether another process holds a lock on a file."""
    if not file.exists():
        return False
    with file.open("r") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def free_port() -> int:
    """A port of loopback that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    """Whether something on loopback takes connections at a port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG; Linux only, like the rest of this module


def play_locally(
    experiment: Experiment,
    *,
    resume: bool = False,
    overwrite: bool = False,
    insecure: bool = False,
    observe: Observer | None = None,
) -> Summary:
    """Run an experiment with real servers and clients on this machine."""
    experiment = experiment.with_settings(checkpoint_every=1, engine="loop")
    federation = LocalFederation(experiment, insecure=insecure)
    return _play(federation, {}, resume=resume, overwrite=overwrite, observe=observe)


def play_app(
    app: OwnApp,
    liars: Liars,
    *,
    resume: bool = False,
    overwrite: bool = False,
    insecure: bool = False,
    observe: Observer | None = None,
) -> Summary:
    """Run an app of the user's own with real servers and clients on this machine."""
    if liars and not app.testing:
        raise LidflError(f"the nodes of {app.folder} do not attack unless you write client_app(task, testing=True)")
    federation = LocalFederation(app.experiment, insecure=insecure, app=app.folder, liars=liars)
    return _play(federation, app.config, resume=resume, overwrite=overwrite, observe=observe)


def _play(
    local: LocalFederation, config: Mapping[str, Any], *, resume: bool, overwrite: bool, observe: Observer | None
) -> Summary:
    with interrupted_once(), local as federation:
        experiment, directory = federation.experiment, federation.directory
        directory.check(experiment, resume=resume, overwrite=overwrite)
        directory.open(experiment, overwrite=overwrite)
        (directory.path / "summary.json").unlink(missing_ok=True)
        federation.prepare()
        federation.up()
        federation.submit(**{**config, "resume": True, "out": experiment.out})
        return federation.watch(observe)
