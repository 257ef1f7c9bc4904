"""`lidfl node`: one node of a federation, on its own machine."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from lidfl.cli.hosted import Hosted
from lidfl.errors import LidflError


@dataclass(kw_only=True)
class Node(Hosted):
    """Be a node of a federation: Flower's SuperNode with keys, quick client apps and a check of who asks."""

    action: Annotated[Literal["init", "up"], tyro.conf.Positional]
    """init: make a key. up: take part until stopped."""
    folder: Annotated[Path, tyro.conf.Positional]
    """Where node.key is, and the server's ca.crt and signing.key.pub."""
    server: str = ""
    """Where the server is: host:port."""
    partition: int = 0
    """Which share of the data is here; what your task's data() is called with."""
    partitions: int = 1
    """Of how many shares."""
    config: str = ""
    """More of the node's config, as Flower writes it: 'key="value" other=1'."""
    key: Path | None = None
    """The node's private key (default: node.key of the folder)."""
    poll: float = 0.5
    """Seconds after which the node asks for work again when it has just had some."""
    idle: float = 3.0
    """Seconds between two such questions when there has been none for a while."""
    model: Path | None = None
    """Where this node's own model is written after every vote (default: model.safetensors of the folder)."""
    nursery: Path | None = None
    """A nursery of this machine to use (default: one of its own)."""
    insecure: bool = False
    """Without TLS and without a key."""

    def init(self) -> None:
        """Make a key."""
        from lidfl.flower.credentials import make_node_key

        self.folder.mkdir(parents=True, exist_ok=True)
        if (self.folder / "node.key").exists():
            raise LidflError(f"{self.folder / 'node.key'} is there already; remove it to make another")
        make_node_key(self.folder, "node.key")
        text = f"send {self.folder / 'node.key.pub'} to the server; ask it for ca.crt and signing.key.pub"
        Console().print(text, highlight=False, soft_wrap=True)

    def up(self) -> None:
        """Take part until stopped."""
        from lidfl.flower.hosting import environment, needed, private_folder, start_nursery

        if not self.server:
            raise LidflError("say where the server is: --server host:port")
        files = [self.folder / "signing.key.pub"]
        files += [] if self.insecure else [self.folder / "ca.crt", self._key]
        needed(*files, how="lidfl node init makes node.key; the server has the other two")
        if self.nursery:
            os.environ.update(environment(self._flower_home, self.nursery.parent / "bin"))
            self._run()
            return
        with private_folder("lidfl-node-") as folder:
            os.environ.update(environment(self._flower_home, folder / "bin"))
            start_nursery(folder)
            self._run()

    @property
    def _key(self) -> Path:
        return self.key or self.folder / "node.key"

    @property
    def _flower_home(self) -> Path:
        return (self.folder / "flwr").resolve()

    def _run(self) -> None:
        """Be the SuperNode."""
        from lidfl.flower.hosting import free_port
        from lidfl.flower.node import Pace, run_supernode
        from lidfl.flower.signing import SETTING, Verifier, public_key_of
        from lidfl.flower.store import VARIABLE

        os.environ[VARIABLE] = str((self.model or self.folder / "model.safetensors").resolve())
        line = (self.folder / "signing.key.pub").read_text().strip()
        config = f"partition-id={self.partition} num-partitions={self.partitions} "
        config += f"{SETTING}={json.dumps(line.split()[1])} {self.config}"
        words = ["--superlink", self.server, "--node-config", config.strip()]
        if self.insecure:
            words.append("--insecure")
        else:
            words += ["--root-certificates", str(self.folder / "ca.crt")]
            words += ["--auth-supernode-private-key", str(self._key)]
        run_supernode(words, free_port(), Verifier(public_key_of(line)), Pace(self.poll, self.idle))
        sys.exit(0)
