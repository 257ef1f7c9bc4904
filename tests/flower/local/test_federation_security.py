"""What nodes of a real federation cannot do: a real SuperLink with TLS and node keys, nodes that lie."""

import os
import re
import shutil
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPSConnection
from pathlib import Path
from time import monotonic, sleep

import pytest

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

import httpx
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from lidfl import LidflError, RunDirectory, run
from lidfl.flower import client_app
from lidfl.flower.codec import Reply, in_envelope, pack_reply, reply_with, secret_of, to_array
from lidfl.flower.credentials import make_node_key
from lidfl.flower.hosting import free_port, listens
from lidfl.flower.local.federation import LocalFederation
from lidfl.flower.local.processes import marked
from lidfl.flower.local.shares import FiledTask
from lidfl.flower.serving import write_proxy
from tests.flower.local.scenes import PlainFederation, answer_until_vote, finish, nodes, play, serving, three_keys

pytestmark = [
    pytest.mark.federation,
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    """Flower's own SuperLink, with three keys."""
    with three_keys(PlainFederation, tmp_path_factory.mktemp("security") / "run") as local:
        yield local


def test_nobody_can_vote_for_another_vote_twice_or_replay_a_ballot(federation: LocalFederation) -> None:
    app = client_app(FiledTask(str(federation.home / "data")))
    with nodes(federation, app) as (victim, liar):
        out = play(federation, "forged")
        waiting: list[Message] = []
        thread = threading.Thread(target=lambda: waiting.append(answer_until_vote(victim, app)))
        thread.start()
        mine = answer_until_vote(liar, app)
        thread.join()
        (theirs,) = waiting
        # In another's name: Flower takes it, since it only checks the key of who hands it in.
        lie = in_envelope(pack_reply(Reply("ballot", ballot=(0,))), secret_of(mine), 60.0)
        liar.send(Message(lie, reply_to=theirs))
        sleep(1)
        victim.send(app(theirs, victim.context))  # too late: Flower has taken the lie for its reply
        # Twice.
        liar.send(reply_with(pack_reply(Reply("ballot", ballot=(1,))), mine))
        liar.send(reply_with(pack_reply(Reply("ballot", ballot=(2,))), mine))
        # In the next round, the old ballot once more.
        old = in_envelope(pack_reply(Reply("ballot", ballot=(1,))), secret_of(mine), 60.0)
        with serving(victim, app):
            liar.send(Message(old, reply_to=answer_until_vote(liar, app)))
            first, second = finish(out)
    assert first["refused"] == {"forged": 1}
    assert sum(first["votes"].values()) == 3, "the victim is asked anew, and its own ballot counts"
    assert second["refused"]["forged"] >= 1
    assert sum(second["votes"].values()) - second.get("stood", 0) == 2, "the liar's first ballot stands, no other"
    assert second["rejected"] == {"missing": 1}


def huge(message: Message) -> RecordDict:
    return pack_reply(Reply("trained", update=np.zeros(10_000_000, dtype=np.float32)))


def bomb(message: Message) -> RecordDict:
    """An array of a few kilobytes that unfolds to 50 GB."""
    array = to_array(np.arange(1_250_000, dtype=np.float32))
    (piece,) = array.slice_array()
    array.__dict__["_chunks"] = [piece] * 10_000
    return RecordDict({"lidfl": ConfigRecord({"kind": "trained"}), "lidfl.update": ArrayRecord({"u": array})})


def junk(message: Message) -> RecordDict:
    many = RecordDict({f"record {number}": ConfigRecord({"x": [0] * 100}) for number in range(3_000)})
    many["lidfl"] = ConfigRecord({"kind": "ballot"})
    return many


@pytest.mark.parametrize("make", [huge, bomb, junk])
def test_a_reply_of_absurd_size_is_dropped_in_little_memory(
    federation: LocalFederation, make: Callable[[Message], RecordDict]
) -> None:
    app = client_app(FiledTask(str(federation.home / "data")))
    with nodes(federation, app) as (honest, liar), serving(honest, app):
        out = play(federation, make.__name__, deadline=60.0, patience=60.0)
        peak = 0
        for _ in range(2):
            message = answer_until_vote(liar, app)
            reply = reply_with(make(message), message)
            with suppress(Exception):  # the server may have dropped it while it is still being uploaded
                liar.send(reply)
            peak = max(peak, server_memory(federation))
        lines = finish(out)
    for line in lines:
        assert line["refused"] == {"too large": 1}
        assert sum(line["votes"].values()) - line.get("stood", 0) == 2
    assert peak < 1_000_000, "kilobytes"


def test_a_reply_that_never_comes_in_full_holds_up_nobody_for_long(federation: LocalFederation) -> None:
    app = client_app(FiledTask(str(federation.home / "data")))
    with nodes(federation, app) as (honest, liar), serving(honest, app):
        out = play(federation, "partial", deadline=8.0)
        for _ in range(2):
            message = answer_until_vote(liar, app)
            liar.send(reply_with(pack_reply(Reply("ballot", ballot=(0,))), message), upload=False)
        lines = finish(out)
    assert [sum(line["votes"].values()) for line in lines] == [2, 2]
    assert RunDirectory(out).summary()["seconds"] < 2 * 60, "Flower itself would wait two hours"


def server_memory(federation: LocalFederation) -> int:
    """The most memory that the ServerApp has held so far, in kilobytes."""
    for pid in marked(federation.processes.mark):
        with suppress(OSError):
            if b"flwr-serverapp" in Path(f"/proc/{pid}/cmdline").read_bytes():
                status = Path(f"/proc/{pid}/status").read_text()
                return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0])
    return 0


def test_a_node_that_is_not_registered_is_refused(federation: LocalFederation) -> None:
    make_node_key(federation.home, "stranger.key")
    federation.start_node(0, key=federation.home / "stranger.key")
    until = monotonic() + 240
    while "not let in" not in (log := (federation.logs / "node-0.log").read_text()):
        assert monotonic() < until, log
        sleep(0.2)
    assert "SuperNode ID" not in log
    federation.processes["node-0"].terminate()
    federation.processes["node-0"].wait(timeout=30)


def test_without_tls_there_is_no_answer(federation: LocalFederation) -> None:
    with pytest.raises(httpx.TransportError):
        httpx.post(f"http://127.0.0.1:{federation.port}/v1/fleet/pull-messages")


# The proxy


@pytest.fixture(scope="module")
def proxy(federation: LocalFederation) -> Iterator[int]:
    """The port of nginx with the configuration of the docs, in front of the SuperLink."""
    nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if not nginx:
        pytest.skip("no nginx: apt-get install nginx-light")
    port, folder = free_port(), federation.home / "nginx"
    folder.mkdir()
    write_proxy(federation.home, f"127.0.0.1:{port}", federation.port)
    more = f"pid {folder}/nginx.pid; daemon off;"
    file = federation.home / "nginx.conf"
    federation.processes.start("nginx", nginx, "-p", folder, "-c", file, "-e", folder / "errors", "-g", more)
    until = monotonic() + 60
    while not listens(port):
        assert monotonic() < until, (federation.logs / "nginx.log").read_text()
        sleep(0.1)
    yield port
    federation.processes["nginx"].terminate()


def test_whole_rounds_run_through_the_proxy(federation: LocalFederation, proxy: int) -> None:
    """Three real nodes that know no other address than the proxy's train and vote, as in the simulator."""
    for client in range(3):
        federation.start_node(client, port=proxy)
    try:
        lines = finish(out := play(federation, "proxied", rounds=3), seconds=600)
    finally:
        for client in range(3):
            federation.processes[f"node-{client}"].terminate()
            federation.processes[f"node-{client}"].wait(timeout=30)
    assert [line["rejected"] for line in lines] == [{}, {}, {}]
    assert [sum(line["votes"].values()) for line in lines] == [3, 3, 3]
    alone = RunDirectory(out).experiment().with_settings(out=str(out.with_name("proxied-alone")))
    run(alone)
    ours, theirs = (RunDirectory(path).final_state().models.parameters for path in (out, alone.out))
    assert (ours == theirs).all()


def test_through_the_proxy_nobody_registers_a_key_or_starts_code(federation: LocalFederation, proxy: int) -> None:
    make_node_key(federation.home, "sybil.key")
    other = f'[superlink.outside]\naddress = "127.0.0.1:{proxy}"\nroot-certificates = "{federation.home}/ca.crt"\n'
    with (federation.home / "config.toml").open("a") as file:
        file.write(other)
    with pytest.raises(LidflError, match="register failed"):
        federation.flwr("supernode", "register", federation.home / "sybil.key.pub", "outside")
    with pytest.raises(LidflError, match=r"run .* failed"):
        federation.flwr("run", federation.app, "outside")
    federation.register(
        federation.home / "sybil.key.pub"
    )  # on loopback it is allowed: that is why there is a proxy


@pytest.mark.parametrize(
    "path",
    [
        "/v1/control/register-node",
        "/v1/control/start-run",
        "/v1/runtime/pull-messages",
        "/v1/fleet/register-node",
        "/v1/fleet/../control/register-node",
        "/v1/fleet/%2e%2e/control/register-node",
        "/v1/fleet/%2e%2e%2fcontrol/register-node",
        "//v1/control/register-node",
        "/docs",
        "/",
    ],
)
def test_the_proxy_lets_nothing_but_the_fleet_api_through(
    federation: LocalFederation, proxy: int, path: str
) -> None:
    context = ssl.create_default_context(cafile=str(federation.home / "ca.crt"))
    connection = HTTPSConnection("127.0.0.1", proxy, context=context, timeout=10)
    connection.request("POST", path)  # as it stands: no client tidies it up
    assert connection.getresponse().status == 403
