"""Imports point one way, and the server's side has no word for who is honest."""

import ast
from pathlib import Path

import pytest

import lidfl

SOURCE = Path(lidfl.__file__).parent
LAYERS = [
    {"errors", "types"},
    {"seeds", "registry", "medians", "theory"},
    {"parameters", "models", "datasets", "partitions", "aggregators", "attacks", "elections"},
    {"collusion", "protocol"},
    {"client", "vote_attacks", "config"},
    {"server", "engines", "checkpoint", "world"},
    {"judging"},
    {"rundir", "simulator"},
    {"simulation", "picking"},
    {"flower"},
    {"tables", "planning"},
    {"sweep"},
    {"reproduce"},
    {"reproduction"},
    {"display"},
    {"report"},
    {"cli"},
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
MODULES = sorted(
    path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.stem not in ("__init__", "__main__")
)


def layer_of(path: Path) -> str:
    """The module, or the package within lidfl that a file belongs to."""
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def nodes(name: str) -> list[ast.AST]:
    """The syntax of a module, or of all modules of a package."""
    paths = [path for path in MODULES if layer_of(path) == name]
    assert paths
    return [node for path in paths for node in ast.walk(ast.parse(path.read_text()))]


def imports(path: Path) -> set[str]:
    """The parts of lidfl that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "lidfl":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lidfl."):
            found.add((node.module or "").split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("lidfl.")}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_only_from_its_own_layer_or_below(path: Path) -> None:
    here = layer_of(path)
    assert here in RANK, f"give {here} a place in LAYERS"
    for other in imports(path) - {here}:
        assert RANK[other] <= RANK[here], f"{here} must not import {other}"


@pytest.mark.parametrize("name", ["protocol", "server", "checkpoint", "aggregators"])
def test_the_server_side_has_no_name_for_who_is_byzantine(name: str) -> None:
    names = set()
    for node in nodes(name):
        for attribute in ("id", "attr", "arg", "name"):
            names.add(str(getattr(node, attribute, "")).lower())
    told = {word for word in names if "byzantine" in word or word in ("honest", "is_honest", "poisoned", "attack")}
    assert not told


@pytest.mark.parametrize("name", ["protocol", "elections", "aggregators"])
def test_the_core_does_no_io_and_knows_no_network_layers(name: str) -> None:
    roots = {alias.name for node in nodes(name) if isinstance(node, ast.Import) for alias in node.names}
    roots |= {node.module or "" for node in nodes(name) if isinstance(node, ast.ImportFrom)}
    assert not roots & {"torch.nn", "os", "io", "pathlib", "socket", "json", "time", "asyncio", "threading"}
