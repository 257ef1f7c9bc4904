"""The protocol on Flower: real servers, real clients, real faults.

| module | what it holds |
|---|---|
| `codec` | requests and replies as Flower's records; what comes in is checked and bounded |
| `fleet` | the only module that calls Grid: messages in flight, deadlines, nonces |
| `answers` | brings a round's requests to the fleet, sending only what a client lacks |
| `server`, `client` | the two apps |
| `federation` | a whole federation on this machine: keys, SuperLink, SuperNodes, one run |

An app of yours is two lines: `app = server_app(Experiment(model="my_app.task:model", …))` and
`app = client_app(task)`, where `task` is a module, or anything else, with the functions that `Task` names.
"""

from typing import TYPE_CHECKING, Any

from lidfl.errors import LidflError

if TYPE_CHECKING:
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp

    from lidfl.config import Experiment
    from lidfl.flower.server import Audit

__all__ = ["client_app", "server_app"]


def server_app(experiment: "Experiment", *, audit: "Audit | None" = None) -> "ServerApp":
    """A Flower ServerApp that plays the experiment's rounds; see `lidfl.flower.server`."""
    require_flower()
    from lidfl.flower.server import build

    return build(experiment, audit)


def client_app(task: Any, *, testing: bool = False) -> "ClientApp":
    """A Flower ClientApp that trains and judges models with the user's `Task`; see `lidfl.flower.client`.

    With `testing`, a node whose config names an `attack` or a `vote-attack` behaves that way.
    """
    require_flower()
    from lidfl.flower.client import build

    return build(task, testing=testing)


def require_flower() -> None:
    """Say what to install if Flower is not there."""
    try:
        import flwr  # noqa: F401
    except ModuleNotFoundError:
        raise LidflError("Flower is not installed; pip install 'lidfl[flower]'") from None
