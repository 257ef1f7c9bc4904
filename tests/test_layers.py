"""Imports point one way, the server's side has no word for who is honest, and no room outgrows its reader."""

import ast
from pathlib import Path

import pytest

import lidfl

SOURCE = Path(lidfl.__file__).parent
LAYERS = [
    {"errors", "types", "seeds", "lazily", "files", "plugins", "registry"},
    {"data", "learning", "protocol"},
    {"methods"},
    {"adversaries"},
    {"settings"},
    {"runs", "theory"},
    {"simulation", "live"},
    {"flower", "studies"},
    {"report"},
    {"cli", "python"},
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
MODULES = sorted(
    path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.stem not in ("__init__", "__main__")
)
SERVER_SIDE = ["protocol", "runs/server.py", "runs/state.py", "methods/aggregators"]
SERVER_SIDE += [f"flower/{name}.py" for name in ("server", "answers", "fleet", "members", "codec")]
MAY_KNOW_ADVERSARIES = {"settings", "simulation", "cli", "flower/local", "flower/misbehaving.py"}
"""Who checks their names, who plays them, and what stands for an attacker's node."""


def room_of(path: Path) -> str:
    """The module, or the package within lidfl that a file belongs to."""
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def within(path: Path, places: set[str] | list[str]) -> bool:
    """Whether a file is one of the places, or below one."""
    inside = path.relative_to(SOURCE).as_posix()
    return any(inside == place or inside.startswith(f"{place}/") for place in places)


def nodes(place: str) -> list[ast.AST]:
    """The syntax of a module, or of all modules of a package."""
    paths = [path for path in MODULES if within(path, [place])]
    assert paths, f"there is no {place}"
    return [node for path in paths for node in ast.walk(ast.parse(path.read_text()))]


def imports(path: Path) -> set[str]:
    """The modules of lidfl that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "lidfl":
            found |= {f"lidfl.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lidfl."):
            found.add(node.module or "")
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("lidfl.")}
    return {name.split(".")[1] for name in found}


def test_there_are_at_most_ten_ranks_and_every_room_has_one() -> None:
    assert len(LAYERS) <= 10
    assert {room_of(path) for path in MODULES} == set(RANK)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_only_from_its_own_layer_or_below(path: Path) -> None:
    here = room_of(path)
    for other in imports(path) - {here}:
        assert RANK[other] <= RANK[here], f"{here} must not import {other}"


@pytest.mark.parametrize("place", SERVER_SIDE)
def test_the_server_side_has_no_name_for_who_is_byzantine(place: str) -> None:
    names = set()
    for node in nodes(place):
        for attribute in ("id", "attr", "arg", "name"):
            names.add(str(getattr(node, attribute, "")).lower())
    told = {word for word in names if "byzantine" in word or word in ("honest", "is_honest", "poisoned", "attack")}
    assert not told


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_only_simulations_and_test_nodes_know_adversaries(path: Path) -> None:
    if room_of(path) != "adversaries" and not within(path, MAY_KNOW_ADVERSARIES):
        assert "adversaries" not in imports(path)
    if room_of(path) == "flower" and not within(path, ["flower/local"]):
        assert "simulation" not in imports(path)


@pytest.mark.parametrize("place", ["protocol", "methods"])
def test_the_core_does_no_io_and_knows_no_network_layers(place: str) -> None:
    roots = {alias.name for node in nodes(place) if isinstance(node, ast.Import) for alias in node.names}
    roots |= {node.module or "" for node in nodes(place) if isinstance(node, ast.ImportFrom)}
    assert not roots & {"torch.nn", "os", "io", "pathlib", "socket", "json", "time", "asyncio", "threading"}


def lines_of(node: ast.FunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_modules_and_functions_stay_short(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 300
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    if not within(path, ["learning/engines.py", "learning/native.py"]):
        too_long = {function.name: lines_of(function) for function in functions if lines_of(function) > 30}
        assert not too_long


def test_half_of_all_functions_have_at_most_six_lines() -> None:
    lengths = sorted(
        lines_of(node)
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    )
    assert lengths[len(lengths) // 2] <= 6
