"""What a simulation can tell of each client, in a file of its own: what it holds, what it is, what it deploys."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from lidfl.errors import LidflError
from lidfl.files import write_atomically

CLIENTS = "clients.json"
MOST = 200
"""Of more clients than this no file is written: nobody would look at them one by one."""


@dataclass(frozen=True)
class ClientTold:
    """One client."""

    client: int
    labels: tuple[int, ...]
    """How many images it holds of each class."""
    byzantine: bool
    deployed: float | None
    """The test accuracy of what it deploys; None of one that is Byzantine."""


def write_clients(folder: Path, clients: list[ClientTold]) -> None:
    """Write the file."""
    content = json.dumps([asdict(client) for client in clients])
    write_atomically(folder / CLIENTS, (content.replace("}, {", "},\n {") + "\n").encode())


def read_clients(folder: Path) -> list[ClientTold]:
    """What is told of clients; nothing if there are too many, or if an earlier version or a real server ran."""
    path = folder / CLIENTS
    if not path.exists():
        return []
    try:
        told = [ClientTold(**line) for line in json.loads(path.read_text(encoding="utf-8"))]
        return [ClientTold(int(c.client), _counts(c.labels), bool(c.byzantine), _share(c.deployed)) for c in told]
    except (OSError, ValueError, TypeError):
        raise LidflError(f"{path} does not tell of clients; delete it, a report does without") from None


def _counts(labels: object) -> tuple[int, ...]:
    if not isinstance(labels, list):
        raise TypeError
    return tuple(map(int, labels))


def _share(value: object) -> float | None:
    return None if value is None else float(str(value))
