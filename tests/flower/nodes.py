"""Nodes without processes, and the small experiments that they take part in."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from flwr.app import Context, Message, RecordDict

from lidfl.flower import client_app, codec
from lidfl.flower.codec import Reply
from lidfl.flower.fleet import Limits
from lidfl.flower.local.shares import FiledTask, write_shares
from lidfl.seeds import seed_for
from lidfl.settings.experiment import Experiment
from lidfl.settings.world import draw_byzantine, load_data
from tests.flower.local_grid import Handle, LocalGrid

PLURALITY: dict[str, Any] = dict(byzantine_fraction=0.5, attack="sign_flip", vote_attack="worst")
RANKED: dict[str, Any] = dict(method="lidfl-ranked", byzantine_fraction=0, list_size=2)
# A simulated attacker trains what most honest clients like, which a real one cannot know: here all train the same.
ATTACKED: dict[str, Any] = PLURALITY | dict(method="lidfl-ranked", parent="uniform")
QUICK = Limits(deadline=0.3, poll=0.01)


def six(**settings: Any) -> Experiment:
    return Experiment.of(dict(num_clients=6, rounds=8, eval_every=4, engine="loop", checkpoint_every=1) | settings)


def grid_of(experiment: Experiment, folder: Path) -> LocalGrid:
    """A node for every client, with the data and the behaviour that the experiment deals it."""
    folder.mkdir(exist_ok=True)
    write_shares(load_data(experiment), experiment.model, folder, seed_for(experiment.seed, "model"))
    app, byzantine = client_app(FiledTask(str(folder)), testing=True), draw_byzantine(experiment)
    bad = {"attack": experiment.attack, "vote-attack": experiment.vote_attack}
    config = {"num-partitions": experiment.num_clients}
    return LocalGrid(
        {
            # node ids are random in Flower; here they run against the order of the clients
            1000 - client: (app, {"partition-id": client, **config, **(bad if client in byzantine else {})})
            for client in range(experiment.num_clients)
        }
    )


def silent(_message: Message, _context: Context) -> None:
    return None


def replying(make: Callable[[Message], RecordDict]) -> Handle:
    return lambda message, _: codec.reply_with(make(message), message)


def ballot(*_: object) -> RecordDict:
    return codec.pack_reply(Reply("ballot", ballot=(0,)))


def hello(partition: int) -> Handle:
    return replying(lambda _: codec.pack_reply(Reply("hello", partition=partition)))
