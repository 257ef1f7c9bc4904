"""The protocol on Flower: real servers, real clients, real faults.

| module | what it holds |
|---|---|
| `codec` | requests and replies as Flower's records; what comes in is checked and bounded |
| `opening` | the one place where what nodes send is opened |
| `exchange`, `patience` | one request to some nodes; how long slow ones are waited for |
| `fleet` | the nodes and how each has behaved; these three call Grid, and nobody else |
| `signing` | the server's signature on its requests |
| `members` | which node is which client |
| `roll`, `joining` | who takes part where nodes join and leave, and what follows from how many they are |
| `answers` | brings a round's requests to the fleet, sending only what a client lacks |
| `deployed`, `complaints` | the fleet as the federation of a run; what if nobody can train |
| `server`, `client` | the two apps |
| `worker`, `own_training`, `store` | a node's work, and where it keeps its own model |
| `misbehaving` | how a node of a test does it wrong |
| `presence`, `nodes_view` | how others see that a server is at work, and its nodes |
| `apps`, `template` | an app of the user's own: how it is read, and one to start from |
| `link`, `serving`, `registration` | `lidfl server`: Flower's SuperLink with a guard, the roll, the proxy |
| `node`, `nursery` | `lidfl node`: Flower's SuperNode with a guard; client apps that start in a tenth of a second |
| `hosting`, `credentials` | what a host's processes share: environment, folders, keys |
| `local` | a whole federation on this machine |

An app of yours is two lines: `app = server_app(Experiment(model="my_app.task:model", …))` and
`app = client_app(task)`, where `task` is a module, or anything else, with the functions that `Task` names.

Nobody here knows who is Byzantine but `misbehaving`, which makes a node so, and `local`, which tests the outcome.
"""

from typing import TYPE_CHECKING, Any

from lidfl.errors import LidflError

if TYPE_CHECKING:
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp

    from lidfl.flower.deployed import OpenAudit
    from lidfl.settings.experiment import Experiment

__all__ = ["client_app", "server_app"]


def server_app(experiment: "Experiment", *, audit: "OpenAudit | None" = None) -> "ServerApp":
    """A Flower ServerApp that plays the experiment's rounds; see `lidfl.flower.server`.

    In a test somebody may hold all data and know who lies; `audit` is how the server asks that somebody.
    """
    require_flower()
    from lidfl.flower.server import make_server_app

    return make_server_app(experiment, audit)


def client_app(task: Any, *, testing: bool = False) -> "ClientApp":
    """A Flower ClientApp that trains and judges models with the user's `Task`; see `lidfl.flower.client`.

    With `testing`, a node whose config names an `attack` or a `vote-attack` behaves that way.
    """
    require_flower()
    from lidfl.flower.client import make_client_app

    return make_client_app(task, testing=testing)


def require_flower() -> None:
    """Say what to install if Flower is not there."""
    try:
        import flwr  # noqa: F401
    except ModuleNotFoundError:
        raise LidflError("Flower is not installed; pip install 'lidfl[flower]'") from None
