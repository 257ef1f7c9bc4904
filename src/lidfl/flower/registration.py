"""Which keys may take part: all of them registered over one connection, on the SuperLink's own machine."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.proto.control_pb2 import ListNodesRequest, RegisterNodeRequest, UnregisterNodeRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from lidfl.errors import LidflError

GONE = "unregistered"
"""What Flower calls a node that was removed."""


@dataclass(frozen=True)
class Change:
    """What setting the roll has changed, and who is on it."""

    new: int
    gone: int
    nodes: Mapping[str, int]
    """The node of every name."""


class Registrar:
    """A connection to the control API of a SuperLink."""

    def __init__(self, address: str, ca: Path | None) -> None:
        self.client = ControlHttpClient.from_server_address(
            server_address=address,
            insecure=ca is None,
            root_certificates=ca.read_bytes() if ca else None,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
        )

    def __enter__(self) -> "Registrar":
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.client.close()

    def registered(self) -> dict[bytes, int]:
        """The node of every key that is registered."""
        nodes = self.client.ListNodes(ListNodesRequest()).nodes_info
        return {bytes(node.public_key): node.node_id for node in nodes if node.status != GONE}

    def set_roll(self, files: Iterable[Path], *, remove: bool) -> "Change":
        """Register the keys of these files, and remove all others if told so.

        Flower registers one key a call; all calls go over one connection. A key that two files hold counts once.
        """
        wanted = {read_public_key(file): file.stem for file in files}
        present = self.registered()
        new = wanted.keys() - present.keys()
        for key in new:
            self.client.RegisterNode(RegisterNodeRequest(public_key=key, name=wanted[key]))
        gone = present.keys() - wanted.keys() if remove else set()
        for key in gone:
            self.client.UnregisterNode(UnregisterNodeRequest(node_id=present[key]))
        ids = self.registered() if new else present
        return Change(len(new), len(gone), {name: ids[key] for key, name in wanted.items() if key in ids})


def read_public_key(file: Path) -> bytes:
    """A node's public key as Flower takes it."""
    try:
        key = load_ssh_public_key(file.read_bytes())
        if not isinstance(key, EllipticCurvePublicKey):
            raise ValueError("not on an elliptic curve")
        return bytes(public_key_to_bytes(key))
    except (OSError, ValueError) as error:
        raise LidflError(f"{file} is no public key of a node ({error}); lidfl node init writes one") from None
