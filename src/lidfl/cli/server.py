"""`lidfl server`: the server of a federation, on its own machine."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from lidfl.cli.hosted import Hosted
from lidfl.errors import LidflError


@dataclass(kw_only=True)
class Server(Hosted):
    """Be the server of a federation: Flower's SuperLink on loopback, with keys, a roll of nodes, and a run."""

    action: Annotated[Literal["init", "up"], tyro.conf.Positional]
    """init: make keys, certificates and the proxy's configuration. up: serve until stopped."""
    folder: Annotated[Path, tyro.conf.Positional]
    """Where keys, the roll of nodes and Flower's state are."""
    hosts: tuple[str, ...] = ()
    """With init: the names or addresses by which nodes reach this machine."""
    port: int = 8000
    """Where the SuperLink listens, on loopback; nodes come through the proxy."""
    public: str = "0.0.0.0:9443"
    """With init: where the proxy listens."""
    app: Path | None = None
    """The app to run, as `lidfl init-flower` writes them; without it, start one with `flwr run`."""
    config: str = ""
    """What overrides the app's settings: 'rounds=50 resume=true'."""
    insecure: bool = False
    """Without TLS and without node keys."""

    def init(self) -> None:
        """Make keys, certificates and the proxy's configuration."""
        from lidfl.flower.addresses import check_host, check_port, check_public
        from lidfl.flower.credentials import make_certificates
        from lidfl.flower.serving import write_proxy
        from lidfl.flower.signing import make_server_key

        if not self.hosts:
            raise LidflError("say by which names nodes reach this machine: --hosts federation.example.org 10.0.0.1")
        for host in self.hosts:
            check_host(host)
        check_public(self.public)
        check_port(self.port)
        (self.folder / "nodes").mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        make_certificates(self.folder, self.hosts)
        if not (self.folder / "signing.key").exists():
            make_server_key(self.folder / "signing.key")
        write_proxy(self.folder.resolve(), self.public, self.port)
        give = f"give {self.folder / 'ca.crt'} and {self.folder / 'signing.key.pub'} to every node, "
        give += f"and put its node.key.pub into {self.folder / 'nodes'} under a name of its own"
        Console().print(give, highlight=False, soft_wrap=True)

    def up(self) -> None:
        """Serve until stopped."""
        from lidfl.flower.addresses import check_port
        from lidfl.flower.hosting import environment, link_arguments, needed
        from lidfl.flower.manifest import read_manifest

        check_port(self.port)
        if self.app:
            read_manifest(self.app)  # what is no app is found out before anything is started
        files = [self.folder / "signing.key"]
        files += [] if self.insecure else [self.folder / name for name in ("ca.crt", "server.crt", "server.key")]
        needed(*files, how=f"lidfl server init {self.folder} makes it")
        home = self.folder.resolve()
        os.environ.update(environment(home if (home / "config.toml").exists() else home / "flwr", None))
        from lidfl.flower import roll, signing
        from lidfl.flower.link import run_superlink
        from lidfl.flower.serving import ROLL, attend

        os.environ[signing.VARIABLE] = str(home / "signing.key")
        os.environ[roll.VARIABLE] = str(home / ROLL)

        attend(home, self.port, insecure=self.insecure, app=self.app, config=self.config)
        run_superlink(link_arguments(home, self.port, insecure=self.insecure))
