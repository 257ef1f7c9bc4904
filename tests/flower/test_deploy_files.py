"""The files of deploy/, and the route by hand: they parse, and lidfl and Flower understand what they say."""

import os
import re
import shlex
import shutil
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

import pytest

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

import yaml  # type: ignore[import-untyped]
from flwr.superlink.cli.flower_superlink import _parse_args_run_superlink
from flwr.supernode.cli.flower_supernode import _parse_args_run_supernode

from lidfl.cli.main import parse
from lidfl.cli.node import Node
from lidfl.cli.server import Server
from lidfl.flower import signing, store
from lidfl.flower.hosting import connection, environment, link_arguments
from lidfl.flower.template import README

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PRIVATE = (
    "federation/ca.key",
    "federation/server.key",
    "federation/signing.key",
    "federation/state.db",
    "node-0/node.key",
)
OURS = (".git/config", ".venv/bin/python", "runs/federation/secret", "app/app/task.py", "src/lidfl/left.key")


def understood(words: list[str]) -> Node | Server:
    command = parse(words)
    assert isinstance(command, Node | Server)
    return command


def test_the_commands_of_compose_are_understood_and_the_proxy_shares_the_servers_loopback() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    server = understood(shlex.split(services["server"]["command"]))
    assert isinstance(server, Server)
    assert server.public == "0.0.0.0:9443"
    nodes = [understood(shlex.split(services[f"node-{number}"]["command"])) for number in range(3)]
    assert [node.partition for node in nodes if isinstance(node, Node)] == [0, 1, 2]
    assert services["proxy"]["network_mode"] == "service:server"
    assert not any("ports" in service for service in services.values())


def test_the_commands_of_the_manifest_are_understood_and_only_the_proxys_port_is_open() -> None:
    parts = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    by_name = {(part["kind"], part["metadata"]["name"]): part for part in parts}
    server, proxy = by_name["StatefulSet", "federation-server"]["spec"]["template"]["spec"]["containers"]
    assert understood(server["args"]).action == "up"
    assert proxy["ports"] == [{"containerPort": 9443}]
    assert by_name["NetworkPolicy", "federation-server"]["spec"]["ingress"] == [{"ports": [{"port": 9443}]}]
    (node,) = by_name["StatefulSet", "node"]["spec"]["template"]["spec"]["containers"]
    script = re.sub(r"\$\(.*?\)", "0", node["command"][-1])
    assert understood(shlex.split(script.partition("exec lidfl ")[2])).action == "up"


def instructions(word: str) -> list[str]:
    """What follows a word of the Dockerfile, one a line."""
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    return [line.partition(" ")[2] for line in text.splitlines() if line.startswith(f"{word} ")]


def copied() -> set[str]:
    """What of the build context is in the image."""
    return {source for line in instructions("COPY") for source in line.split()[:-1]}


def left_out(path: str) -> bool:
    """Whether .dockerignore keeps a file from the build: the last pattern that fits it or a folder of it says."""
    name, found = PurePosixPath(path), False
    above = [str(name), *map(str, name.parents)][:-1]
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!")
        anywhere = pattern.startswith("**/")
        parts = name.parts if anywhere else above
        if line and not line.startswith("#") and any(fnmatch(p, pattern.removeprefix("**/")) for p in parts):
            found = not line.startswith("!")
    return found


@pytest.mark.parametrize("path", [*PRIVATE, *OURS])
def test_no_key_and_no_run_that_lies_beside_the_code_is_in_the_image(path: str) -> None:
    assert left_out(path)
    assert not any(PurePosixPath(path).is_relative_to(source) for source in copied() - {"src"})


def test_all_that_the_wheel_is_made_of_is_in_the_image_and_nothing_else() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    hatch = settings["tool"]["hatch"]
    wheel = hatch["build"]["targets"]["wheel"]
    fragments = hatch["metadata"]["hooks"]["fancy-pypi-readme"]["fragments"]
    made_of = {*wheel["force-include"], *settings["project"]["license-files"], *(f["path"] for f in fragments)}
    made_of |= {PurePosixPath(package).parts[0] for package in wheel["packages"]}
    assert copied() == made_of | {"pyproject.toml", "constraints.txt"}
    assert not any(left_out(source) for source in copied())
    assert not left_out("src/lidfl/__init__.py")


def test_who_serves_in_a_container_may_write_its_run_to_the_volume() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    (volume,) = (v for v in compose["services"]["server"]["volumes"] if v.split(":")[0] in compose["volumes"])
    (user,), (run,) = instructions("USER"), instructions("RUN")
    place = volume.split(":")[1]
    steps = [step.split() for step in run.split("&&")]
    assert ["mkdir", place] in steps
    assert ["chown", f"{user}:{user}", place] in steps, "else it is root's, as Docker makes it"
    assert f"out='{place}/" in compose["services"]["server"]["command"]


def test_the_roll_of_the_manifest_is_the_secret_as_it_is_and_not_as_it_was_at_the_start() -> None:
    parts = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    (server,) = (
        part for part in parts if part["metadata"]["name"] == "federation-server" and "replicas" in part["spec"]
    )
    pod = server["spec"]["template"]["spec"]
    (roll,) = (mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "roll")
    assert roll["mountPath"] == f"{pod['containers'][0]['args'][2]}/nodes"
    assert "subPath" not in roll, "what is mounted so never changes"
    assert not [mount for mount in pod["initContainers"][0]["volumeMounts"] if mount["name"] == "roll"]


@pytest.mark.parametrize("name", ["lidfl-server", "lidfl-proxy", "lidfl-node"])
def test_units_are_units_and_their_commands_are_understood(name: str, tmp_path: Path) -> None:
    text = (DEPLOY / "systemd" / f"{name}.service").read_text()
    (command,) = re.findall(r"ExecStart=(.*)", text)
    if "lidfl/bin/lidfl" in command:
        words = shlex.split(command.replace("${PARTITION}", "0").replace("${PARTITIONS}", "3"))[1:]
        assert understood(words).action == "up"
    if shutil.which("systemd-analyze"):
        unit = tmp_path / f"{name}.service"
        unit.write_text(re.sub(r"ExecStart=\S+", "ExecStart=/bin/true", text).replace("User=lidfl", "User=root"))
        done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
        told = [line for line in done.stderr.splitlines() if name in line and "lidfl-server.service" not in line]
        assert not told


def by_hand() -> str:
    """What docs/flower.md tells to type without our commands, one command a line."""
    section = (ROOT / "docs" / "flower.md").read_text().partition("## By hand")[2].partition("\n## ")[0]
    return "".join(re.findall(r"```shell\n(.*?)```", section, re.S)).replace("\\\n", " ")


def typed(program: str) -> list[str]:
    """The words that follow a program's name there."""
    (line,) = (line for line in by_hand().splitlines() if line.startswith(f"{program} "))
    return shlex.split(line)[1:]


def test_the_route_by_hand_starts_flowers_programs_as_we_do_and_they_understand_it() -> None:
    assert sorted(typed("flower-superlink")) == sorted(link_arguments(Path("federation"), 8000, insecure=False))
    link = _parse_args_run_superlink().parse_args(typed("flower-superlink"))
    assert (link.host, link.port, link.enable_supernode_auth) == ("127.0.0.1", 8000, True)
    node = _parse_args_run_supernode().parse_args(typed("flower-supernode"))
    assert node.superlink == "10.77.0.1:9443"
    assert node.auth_supernode_private_key == "node/node.key"
    assert f'{signing.SETTING}="$KEY"' in node.node_config


def test_the_route_by_hand_sets_all_that_our_commands_set(monkeypatch: pytest.MonkeyPatch) -> None:
    server, _, node = by_hand().partition("export FLWR_HOME=$PWD/node/flwr")
    set_at_server = dict(re.findall(r"([A-Z_]+)=(\S+)", server))
    set_at_node = dict(re.findall(r"([A-Z_]+)=(\S+)", node))
    monkeypatch.setattr("os.environ", {})
    ours = environment(Path("$PWD/federation/flwr"))
    del ours["PATH"]
    assert set_at_server.items() >= ours.items()
    del ours["FLWR_HOME"]
    by_message = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2"}  # there is no nursery that takes it at once
    assert set_at_node.items() >= (ours | by_message).items()
    assert signing.VARIABLE in set_at_server
    assert store.VARIABLE in set_at_node


def test_flower_finds_our_superlink_by_the_file_that_is_written_by_hand(tmp_path: Path) -> None:
    lines = [line for line in by_hand().splitlines() if line.startswith(("mkdir", "echo"))]
    env = {"FLWR_HOME": str(tmp_path / "federation" / "flwr"), "PATH": os.environ["PATH"]}
    subprocess.run(["bash", "-ec", "\n".join(lines)], cwd=tmp_path, env=env, check=True)
    written = (tmp_path / "federation" / "flwr" / "config.toml").read_text()
    assert written == connection(8000, tmp_path / "federation" / "ca.crt")


def test_what_the_readme_of_an_app_tells_to_type_is_understood_by_a_shell_and_by_lidfl() -> None:
    text = README.replace("{name}", "app").replace("{package}", "app")
    blocks = re.findall(r"```\n(.*?)```", text, re.S)
    lines = [line for block in blocks for line in block.splitlines()]
    assert subprocess.run(["bash", "-n"], input="\n".join(lines), text=True, check=False).returncode == 0
    ours = [shlex.split(line)[1:] for line in lines if line.startswith("lidfl ")]
    assert [type(parse(words)).__name__ for words in ours][1:] == ["Server", "Node", "Server", "Node"]
