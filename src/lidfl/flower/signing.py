"""The server's signature on its requests: a node does only what its own server asks of it, and once.

Any registered node can hand Flower a message for any other node whose id it knows, and Flower delivers it as if it
came from the server. So the server of a federation has a key pair (Ed25519). A node knows the public key from its
own configuration, `server-key`; a secret that nodes shared would let each of them forge.

What is signed: the run, the round, the kind of request, the node that it is for, the seconds that it has, when that
time is over, and the hash over all that the request holds. The signature stands in the message's group id, which
Flower passes on as it is. So `lidfl node` can tell a forged message from its head, before anything of it is fetched
or a process is started; a node under plain `flower-supernode` tells it first thing in its client app.
"""

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from time import time
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
    load_ssh_public_key,
)
from flwr.app import Message
from flwr.app.metadata import Metadata

from lidfl.errors import LidflError

VARIABLE = "LIDFL_SERVER_KEY"
"""The environment variable that names the file of the server's private key."""
SETTING = "server-key"
"""The key of a node's config with the server's public key."""
SKEW = 60.0
"""Seconds by which clocks may differ; Flower's own check of node keys allows no more."""


class Unsigned(Exception):
    """Why a message is not obeyed."""


class Signer:
    """The server's side: signs requests, if it has a key."""

    def __init__(self, key: Ed25519PrivateKey | None) -> None:
        self.key = key

    @classmethod
    def from_environment(cls) -> "Signer":
        """The signer whose key the environment names; one that does not sign if it names none."""
        path = os.environ.get(VARIABLE)
        return cls(read_private_key(Path(path)) if path else None)

    def sign(self, message: Message, group: str) -> None:
        """Put the group and the signature into a message's group id."""
        metadata = message.metadata
        expires = int(time() + metadata.ttl) + 1
        metadata.group_id = f"{group}.{expires}."
        if self.key:
            signature = self.key.sign(signed_text(metadata, message.content.object_id))
            metadata.group_id += base64.urlsafe_b64encode(signature).decode()


class Verifier:
    """A node's side: obeys what is signed for it, in time, and once.

    It remembers what it has obeyed until that would be refused as too old, and the latest round of every run: in an
    earlier round nothing is asked any more.
    """

    def __init__(self, key: Ed25519PublicKey) -> None:
        self.key = key
        self.obeyed: dict[str, float] = {}
        """The hashes of the requests that were obeyed, and when each expires."""
        self.rounds: dict[int, int] = {}

    def check(self, metadata: Metadata, digest: str, node: int) -> None:
        """Raise `Unsigned` unless this is a new request of the server for this node."""
        group, expires, signature = _parts(metadata.group_id)
        if metadata.dst_node_id != node:
            raise Unsigned("it is for another node")
        now = time()
        # A signature says until when: no longer than its own deadline, and a clock's difference, from now.
        if not now - SKEW < expires < now + metadata.ttl + SKEW:
            raise Unsigned("it is too old")
        try:
            self.key.verify(signature, signed_text(metadata, digest))
        except InvalidSignature:
            raise Unsigned("it is not signed by the server") from None
        self._once(metadata.run_id, group, digest, expires)

    def memory(self) -> dict[str, Any]:
        """What must be remembered, as Flower keeps it."""
        return {
            "digests": list(self.obeyed),
            "expires": list(self.obeyed.values()),
            "runs": [str(run) for run in self.rounds],
            "rounds": list(self.rounds.values()),
        }

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Take up what was remembered."""
        self.obeyed = dict(zip(memory["digests"], memory["expires"], strict=True))
        self.rounds = {int(run): index for run, index in zip(memory["runs"], memory["rounds"], strict=True)}

    def _once(self, run: int, group: str, digest: str, expires: float) -> None:
        self.obeyed = {name: until for name, until in self.obeyed.items() if until > time() - SKEW}
        if digest in self.obeyed:
            raise Unsigned("it was obeyed before")
        self.obeyed[digest] = expires
        if group.isdigit():
            if int(group) < self.rounds.get(run, 0):
                raise Unsigned("its round is over")
            self.rounds[run] = int(group)


def signed_text(metadata: Metadata, digest: str) -> bytes:
    """What a signature covers."""
    group, _, _ = metadata.group_id.rpartition(".")
    parts = (metadata.run_id, metadata.message_type, metadata.dst_node_id, float(metadata.ttl), group, digest)
    return "\n".join(("lidfl request", *map(str, parts))).encode()


def _parts(group_id: str) -> tuple[str, float, bytes]:
    """The round, the time until which it holds, and the signature, of a group id."""
    try:
        group, expires, signature = group_id.split(".")
        return group, float(expires), base64.urlsafe_b64decode(signature)
    except ValueError:
        raise Unsigned("it has no signature") from None


def verifier_of(node_config: Mapping[str, Any]) -> Verifier | None:
    """Who checks a node's messages; None if its config has no server key."""
    text = node_config.get(SETTING)
    return Verifier(public_key_of(str(text))) if text else None


# Keys


def make_server_key(path: Path) -> None:
    """Write a server's private key, and its public key as one line to <name>.pub."""
    key = Ed25519PrivateKey.generate()
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    path.with_name(path.name + ".pub").write_bytes(public + b"\n")


def read_private_key(path: Path) -> Ed25519PrivateKey:
    """The private key of a file."""
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except (OSError, ValueError) as error:
        raise LidflError(f"{VARIABLE} names no key: {error}; lidfl server makes one") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise LidflError(f"{path} is not an Ed25519 key; make one: ssh-keygen -t ed25519 -N '' -f {path}")
    return key


def public_key_of(text: str) -> Ed25519PublicKey:
    """The public key of a line such as ssh-keygen writes, or of its second word alone."""
    line = text if text.startswith("ssh-") else f"ssh-ed25519 {text}"
    try:
        key = load_ssh_public_key(line.encode())
    except ValueError:
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise LidflError(
            f"{SETTING} of the node's config is no Ed25519 public key; copy it from the server's .pub file"
        )
    return key
