"""Mutation testing: which small mistakes in a module no test would notice.

    python -m tests.mutate protocol/replies tests/protocol
    python -m tests.mutate adversaries/collusion tests/adversaries/test_collusion.py --every 2 --from 1

Each mutant is the module with one operator, comparison, number or word changed for its opposite; the tests are run
on it in a process of their own, forked when the libraries are loaded, which takes longer than most tests. Whoever
survives is printed with its line. It is not part of the suite: a module takes minutes.
"""

import argparse
import ast
import importlib.abc
import importlib.machinery
import importlib.util
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

SOURCE = Path(__file__).parents[1] / "src" / "lidfl"
SECONDS = 300
"""After so long a mutant counts as found: it hangs."""
OPPOSITES: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
}
WORDS = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum"}


class Change(ast.NodeTransformer):
    """Changes the n-th place that can be changed; counts them all."""

    def __init__(self, place: int) -> None:
        self.place = place
        self.count = 0
        self.line = 0

    def _is_next(self, node: ast.AST) -> bool:
        self.count += 1
        if self.count - 1 == self.place:
            self.line = getattr(node, "lineno", 0)
        return self.count - 1 == self.place

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """A comparison that is off by one, or the opposite."""
        node.ops = [
            OPPOSITES[type(op)]() if type(op) in OPPOSITES and self._is_next(node) else op  # type: ignore[misc]
            for op in node.ops
        ]
        return self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """Another operation; types such as `int | None` stay."""
        if type(node.op) in OPPOSITES and self._is_next(node):
            node.op = OPPOSITES[type(node.op)]()  # type: ignore[assignment]
        return self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """And for or."""
        if self._is_next(node):
            node.op = OPPOSITES[type(node.op)]()  # type: ignore[assignment]
        return self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """Without its sign, or its not."""
        if isinstance(node.op, ast.Not | ast.USub) and self._is_next(node):
            return self.generic_visit(node.operand)
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """Another number, or the other truth."""
        if isinstance(node.value, bool) and self._is_next(node):
            return ast.copy_location(ast.Constant(not node.value), node)
        if type(node.value) is int and self._is_next(node):
            return ast.copy_location(ast.Constant(node.value + 1), node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """The opposite word."""
        if node.id in WORDS and self._is_next(node):
            node.id = WORDS[node.id]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """The opposite method."""
        if node.attr in WORDS and self._is_next(node):
            node.attr = WORDS[node.attr]
        return self.generic_visit(node)


def mutants(source: str) -> Iterator[tuple[int, str]]:
    """Each mutant of a module: the line that is changed, and the whole."""
    counter = Change(-1)
    counter.visit(ast.parse(source))
    for place in range(counter.count):
        change = Change(place)
        tree = ast.fix_missing_locations(change.visit(ast.parse(source)))
        yield change.line, ast.unparse(tree)


class Impostor(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads a mutant in the place of a module."""

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self.source = source

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        """The mutant, if it is asked for."""
        return importlib.util.spec_from_loader(name, self) if name == self.name else None

    def exec_module(self, module: ModuleType) -> None:
        """Run the mutant's code."""
        exec(compile(self.source, self.name, "exec"), module.__dict__)


def survives(name: str, source: str, tests: Sequence[str]) -> bool:
    """Whether all tests pass with a mutant in the place of a module."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    signal.alarm(SECONDS)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    sys.meta_path.insert(0, Impostor(name, source))
    import pytest

    quiet = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # hypothesis was there before it
    os._exit(int(pytest.main(["-x", "-q", *quiet, *tests])))


def main() -> None:
    """Print who survives, and how many there were."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", help="such as protocol/replies")
    parser.add_argument("tests", nargs="+")
    parser.add_argument("--every", type=int, default=1, help="only every n-th mutant")
    parser.add_argument("--from", type=int, default=0, dest="start", help="the first of them")
    given = parser.parse_args()
    import hypothesis  # noqa: F401
    import torch  # noqa: F401

    source = (SOURCE / f"{given.module}.py").read_text()
    name = f"lidfl.{given.module.replace('/', '.')}"
    if not survives(name, source, given.tests):
        sys.exit("the tests fail as it is")
    chosen = list(mutants(source))[given.start :: given.every]
    lines = source.splitlines()
    found = 0
    for line, mutant in chosen:
        if survives(name, mutant, given.tests):
            found += 1
            print(f"{given.module}.py:{line} {lines[line - 1].strip()}", flush=True)  # noqa: T201
    print(f"{found} of {len(chosen)} survive")  # noqa: T201


if __name__ == "__main__":
    main()
