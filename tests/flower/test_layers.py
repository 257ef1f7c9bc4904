"""Who may know who lies: whoever makes a node lie, and whoever tests the outcome; no server, no honest node."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import lidfl

FLOWER = Path(lidfl.__file__).parent / "flower"
IN_THE_KNOW = {"misbehaving.py"}
MODULES = [path for path in sorted(FLOWER.glob("*.py")) if path.name not in IN_THE_KNOW]


def every_module(node: ast.AST) -> list[str]:
    """The modules that an import statement names."""
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


def test_there_is_something_to_test() -> None:
    assert {"server.py", "answers.py", "fleet.py", "members.py", "codec.py", "client.py", "worker.py"} <= {
        path.name for path in MODULES
    }


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_no_server_and_no_honest_node_imports_a_simulator_or_an_adversary(path: Path) -> None:
    found = {name for node in ast.walk(ast.parse(path.read_text())) for name in every_module(node)}
    found -= {"lidfl.flower.misbehaving.Liar"} if path.name == "client.py" else set()
    forbidden = ("lidfl.simulation", "lidfl.adversaries", "lidfl.flower.local", "lidfl.flower.misbehaving")
    assert not {name for name in found if name.startswith(forbidden)}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_no_server_and_no_honest_node_has_a_name_for_who_is_byzantine(path: Path) -> None:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        for attribute in ("id", "attr", "arg", "name"):
            names.add(str(getattr(node, attribute, "")).lower())
    told = {word for word in names if "byzantine" in word or word in ("honest", "is_honest", "poisoned", "attack")}
    assert not told


def test_a_server_and_an_honest_node_run_without_them() -> None:
    pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")
    code = "import sys; show = lambda: print(*(name for name in sys.modules if name.startswith('lidfl')))\n"
    code += "import lidfl.flower.client, lidfl.flower.worker; show()\nimport lidfl.flower.server; show()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    node, server = (line.split() for line in done.stdout.splitlines())
    # A server knows the names of attacks, since it checks the settings, but nothing that plays them.
    assert not [name for name in server if name.startswith(("lidfl.simulation", "lidfl.flower.misbehaving"))]
    assert not [
        name for name in node if name.startswith(("lidfl.simulation", "lidfl.adversaries", "lidfl.settings"))
    ]
