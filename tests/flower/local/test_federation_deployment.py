"""The deployment that docs/flower.md describes, typed as it stands, on three hosts: network namespaces."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from lidfl import RunDirectory
from tests.command import lines_without_times

pytestmark = [pytest.mark.federation, pytest.mark.filterwarnings("ignore")]

DOCS = Path(__file__).parents[3] / "docs" / "flower.md"
HOSTS = {"server": "10.77.0.1", "node-0": "10.77.0.2", "node-1": "10.77.0.3"}
BRIDGE = "lidfl-br"
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin:/usr/bin:/bin:/sbin"


def blocks() -> list[tuple[list[str], str]]:
    """The blocks of the section on deployment: on which hosts, and what to type there."""
    section = DOCS.read_text().partition("## Deploy it")[2].partition("\n## ")[0]
    found = re.findall(r"On ([^\n]*?):\n```\n(.*?)```", section, re.S)
    return [(re.findall(r"server|node-\d", hosts), commands) for hosts, commands in found]


def by_hand() -> list[tuple[str, str]]:
    """The blocks of the section on Flower's own programs: on which host, and what to type there."""
    section = DOCS.read_text().partition("## By hand")[2].partition("\n## ")[0]
    return re.findall(r"On (server|node-\d)[^\n]*:\n```shell\n(.*?)```", section, re.S)


def ip(*words: str) -> bool:
    return subprocess.run(["ip", *words], capture_output=True, check=False).returncode == 0


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[dict[str, Path]]:
    """Three namespaces on a bridge, each with a folder of its own."""
    if not shutil.which("ip") or not shutil.which("nginx", path=PATH) or os.geteuid():
        pytest.skip("needs root, ip and nginx")
    take_down()  # what a killed run has left
    if not ip("link", "add", BRIDGE, "type", "bridge"):
        pytest.skip("network namespaces are not allowed here")
    ip("link", "set", BRIDGE, "up")
    for number, (name, address) in enumerate(HOSTS.items()):
        host = f"lidfl-{name}"
        for words in (
            f"netns add {host}",
            f"link add lidfl-{number} type veth peer name eth0 netns {host}",
            f"link set lidfl-{number} master {BRIDGE} up",
            f"-n {host} addr add {address}/24 dev eth0",
            f"-n {host} link set eth0 up",
            f"-n {host} link set lo up",
        ):
            assert ip(*words.split()), words
        (tmp_path / name).mkdir()
    yield {name: tmp_path / name for name in HOSTS}
    take_down()


def take_down() -> None:
    """Remove hosts and wires: a host dies after its last process, and until then its wire's name is taken."""
    for number, name in enumerate(HOSTS):
        inside = subprocess.run(
            ["ip", "netns", "pids", f"lidfl-{name}"], capture_output=True, text=True, check=False
        )
        for pid in inside.stdout.split():
            os.kill(int(pid), signal.SIGKILL)
        ip("link", "del", f"lidfl-{number}")
        ip("netns", "del", f"lidfl-{name}")
    ip("link", "del", BRIDGE)


def type_in(host: str, folder: Path, commands: str) -> subprocess.Popen[bytes]:
    """Type commands at a host; what they print goes to a file."""
    environment = {**os.environ, "PATH": PATH, "HOME": str(folder)}
    words = ["ip", "netns", "exec", f"lidfl-{host}", "bash", "-ec", commands]
    with (folder / "printed.txt").open("ab") as file:
        return subprocess.Popen(words, cwd=folder, env=environment, stdout=file, stderr=file)


def printed(hosts: dict[str, Path]) -> dict[str, str]:
    return {name: (folder / "printed.txt").read_text()[-3000:] for name, folder in hosts.items()}


def exchange_files(hosts: dict[str, Path]) -> None:
    """What the docs tell to bring from one host to another."""
    for name in ("node-0", "node-1"):
        shutil.copy(hosts[name] / "node" / "node.key.pub", hosts["server"] / "federation" / "nodes" / f"{name}.pub")
        for file in ("ca.crt", "signing.key.pub"):
            shutil.copy(hosts["server"] / "federation" / file, hosts[name] / "node")


def test_the_deployment_of_the_docs_runs_on_three_hosts_as_it_is_typed(hosts: dict[str, Path]) -> None:
    *first, server, one, other = blocks()
    make_keys(hosts, first)
    for where, commands in (server, one, other):
        type_in(where[0], hosts[where[0]], commands)
    four_rounds_are_played(hosts)
    closed = "! timeout 3 bash -c 'echo > /dev/tcp/10.77.0.1/8000'"
    assert type_in("node-0", hosts["node-0"], closed).wait(timeout=20) == 0, "the SuperLink is not on the network"
    removes_a_node(hosts)


def make_keys(hosts: dict[str, Path], steps: list[tuple[list[str], str]]) -> None:
    """Type the first step, and bring the files from host to host."""
    assert [where for where, _ in steps] == [["server"], ["node-0", "node-1"]]
    for where, commands in steps:
        for host in where:
            assert type_in(host, hosts[host], commands).wait(timeout=300) == 0, printed(hosts)
    exchange_files(hosts)


def four_rounds_are_played(hosts: dict[str, Path]) -> None:
    """Both nodes train and vote in every round."""
    directory = RunDirectory(hosts["server"] / "runs" / "app")
    until = monotonic() + 900
    while not directory.is_finished:
        assert monotonic() < until, printed(hosts)
        sleep(1)
    lines = lines_without_times(directory.path)
    assert [line["rejected"] for line in lines] == [{}] * 4
    assert [sum(line["votes"].values()) for line in lines] == [2] * 4
    print([round(record.seconds, 1) for record in directory.records()])  # noqa: T201


def test_the_route_by_hand_runs_on_three_hosts_as_it_is_typed(hosts: dict[str, Path]) -> None:
    *first, server, _, _ = blocks()
    make_keys(hosts, first)
    (_, settings), (_, once), (_, link), (_, run), (_, node) = by_hand()
    proxy = server[1].splitlines()[0]
    assert proxy.startswith("nginx ")
    assert type_in("server", hosts["server"], f"{settings}{once}{proxy}").wait(timeout=60) == 0, printed(hosts)
    type_in("server", hosts["server"], settings + link)
    until_it_listens = "until (echo > /dev/tcp/127.0.0.1/8000) 2> /dev/null; do sleep 1; done\n"
    typed = type_in("server", hosts["server"], settings + until_it_listens + run)
    assert typed.wait(timeout=300) == 0, printed(hosts)
    type_in("node-0", hosts["node-0"], node)
    type_in("node-1", hosts["node-1"], node.replace("partition-id=0", "partition-id=1"))
    four_rounds_are_played(hosts)
    for name in ("node-0", "node-1"):
        assert (hosts[name] / "node" / "model.safetensors").exists(), "what the docs say it writes"


def removes_a_node(hosts: dict[str, Path]) -> None:
    """Take a key out of the roll, as the docs say; the node is shut out soon after."""
    (hosts["server"] / "federation" / "nodes" / "node-1.pub").unlink()
    until = monotonic() + 240
    while "1 gone" not in (hosts["server"] / "printed.txt").read_text():
        assert monotonic() < until, "the roll is not looked at"
        sleep(0.5)
