"""A decorated function is found by its name, given its options by a spec and its context by the caller."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lidfl.data.partitions import partition
from lidfl.errors import LidflError
from lidfl.methods.aggregators import aggregator
from lidfl.registry import Registry

dish = Registry[dict[str, Any]]("dish", frozenset({"oven", "guests"}))


@dish
def soup(water: float) -> dict[str, Any]:
    """Just water."""
    return {"water": water}


@dish
def cake(flour: float, *, eggs: int = 3, sugar: float = 0.5, icing: str = "none", dry: bool = False) -> Any:
    """Flour and more.

    A second paragraph that no list shows.
    """
    return {"flour": flour, "eggs": eggs, "sugar": sugar, "icing": icing, "dry": dry}


@dish
def roast(meat: float, oven: str, *, minutes: int, guests: int) -> dict[str, Any]:
    """Meat from the oven."""
    return {"meat": meat, "oven": oven, "minutes": minutes, "guests": guests}


@dish
def import_() -> dict[str, Any]:
    """Bought elsewhere."""
    return {}


# Specs.


def test_a_name_alone_leaves_every_option_at_its_default() -> None:
    bound = dish.resolve("cake")
    assert (bound.name, bound.options) == ("cake", {})
    assert bound(2.0) == {"flour": 2.0, "eggs": 3, "sugar": 0.5, "icing": "none", "dry": False}


def test_options_are_read_as_the_types_they_are_declared_with() -> None:
    made = dish.resolve("cake:eggs=4,sugar=1e-1,icing=lemon=zest,dry=True")(1.0)
    assert made == {"flour": 1.0, "eggs": 4, "sugar": 0.1, "icing": "lemon=zest", "dry": True}
    assert [type(value) for value in made.values()] == [float, int, float, str, bool]


def test_a_value_without_a_name_is_the_first_options() -> None:
    assert dish.resolve("cake:7").options == {"eggs": 7}
    assert dish.resolve("cake:7,icing=lemon").options == {"eggs": 7, "icing": "lemon"}


def test_the_documented_specs_parse() -> None:
    assert aggregator.resolve("gm:iterations=3").options == {"iterations": 3}
    assert partition.resolve("dirichlet:0.1").options == {"concentration": 0.1}


def test_a_trailing_underscore_is_no_part_of_the_name() -> None:
    assert dish.resolve("import")() == {}
    assert "import" in dish
    assert "import_" not in dish


def test_names_are_listed_in_order() -> None:
    assert list(dish) == ["cake", "import", "roast", "soup"]


def test_a_description_is_name_options_with_defaults_and_the_first_line_of_help() -> None:
    assert dish.describe() == [
        ("cake", "eggs=3, sugar=0.5, icing=none, dry=False", "Flour and more."),
        ("import", "", "Bought elsewhere."),
        ("roast", "minutes", "Meat from the oven."),
        ("soup", "", "Just water."),
    ]


# Mistakes in a spec name the fix.


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("pie", "unknown dish 'pie'; choose from cake, import, roast, soup"),
        ("", "unknown dish ''; choose from cake, import, roast, soup"),
        ("Cake", "unknown dish 'Cake'; choose from cake, import, roast, soup"),
        ("cake:egg=3", "dish 'cake' has no option 'egg'; it takes eggs, sugar, icing, dry"),
        ("cake:=3", "dish 'cake' has no option ''; it takes eggs, sugar, icing, dry"),
        ("cake:flour=3", "dish 'cake' has no option 'flour'; it takes eggs, sugar, icing, dry"),
        ("cake:eggs=2.5", "option 'eggs' of dish 'cake' must be int, not '2.5'"),
        ("cake:eggs=", "option 'eggs' of dish 'cake' must be int, not ''"),
        ("cake:many", "option 'eggs' of dish 'cake' must be int, not 'many'"),
        ("cake:sugar=sweet", "option 'sugar' of dish 'cake' must be float, not 'sweet'"),
        ("cake:dry=perhaps", "option 'dry' of dish 'cake' must be bool, not 'perhaps'"),
        ("soup:3", "dish 'soup' takes no options"),
        ("soup:salt=3", "dish 'soup' takes no options"),
        ("roast", "dish 'roast' needs minutes: write roast:minutes=…"),
        ("roast:guests=3", "dish 'roast' has no option 'guests'; it takes minutes"),
    ],
)
def test_a_wrong_spec_is_refused_with_the_fix(spec: str, message: str) -> None:
    with pytest.raises(LidflError) as error:
        dish.resolve(spec)
    assert str(error.value) == message


# Context.


def test_context_reaches_only_those_who_name_it() -> None:
    kitchen: dict[str, Any] = {"oven": "hot", "guests": 4}
    assert dish.resolve("soup")(1.0, **kitchen) == {"water": 1.0}
    served = dish.resolve("roast:90")(1.0, **kitchen)
    assert served == {"meat": 1.0, "oven": "hot", "minutes": 90, "guests": 4}


def test_a_bound_function_says_which_context_it_wants() -> None:
    assert dish.resolve("soup").wants == frozenset()
    assert dish.resolve("roast:90").wants == {"oven", "guests"}


# Registration.


def test_a_registered_function_stays_an_ordinary_function() -> None:
    assert soup(3.0) == {"water": 3.0}


def test_a_function_without_a_docstring_is_refused() -> None:
    def silent() -> None:
        pass

    registry = Registry[None]("dish")
    with pytest.raises(TypeError, match="dish 'silent' needs a docstring"):
        registry(silent)
    assert "silent" not in registry


def test_an_option_that_no_spec_can_write_is_refused() -> None:
    def listed(*, of: list[int]) -> None:
        """Options of a type without a spelling."""

    def maybe(*, of: int | None = None) -> None:
        """Options of two types."""

    def untyped(*, of=1):  # type: ignore[no-untyped-def]
        """Options of no type."""

    registry = Registry[None]("dish")
    for function in (listed, maybe, untyped):
        with pytest.raises(TypeError, match=r"option 'of' of dish '.*' must be int, float, str or bool"):
            registry(function)
    assert list(registry) == []


def test_context_may_be_of_any_type() -> None:
    def served(*, guests: list[str]) -> int:
        """Context is not written by users."""
        return len(guests)

    registry = Registry[int]("dish", frozenset({"guests"}))
    registry(served)
    assert registry.resolve("served")(guests=["Ann", "Bob"]) == 2


# Plugins.

PLUGIN = '''
from lidfl import aggregator
from lidfl.types import Parameters, Updates

@aggregator
def first(updates: Updates, *, times: float = 1.0) -> Parameters:
    """The first update."""
    return times * updates[0]
'''

USER = """
import sys
import torch
from lidfl import aggregator
assert "plugged_in" not in sys.modules
print(aggregator.resolve("first:2")(torch.tensor([[1.0, 2.0], [5.0, 5.0]])).tolist())
print("first" in aggregator, "first" in list(aggregator))
"""


def test_an_installed_package_registers_through_the_entry_point_group(tmp_path: Path) -> None:
    (tmp_path / "plugged_in.py").write_text(PLUGIN)
    information = tmp_path / "plugged_in-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged-in\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[lidfl]\nmine = plugged_in\n")
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    user = subprocess.run(
        [sys.executable, "-c", USER],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert user.stderr == ""
    assert user.stdout.splitlines() == ["[2.0, 4.0]", "True True"]


def test_an_option_given_twice_is_refused() -> None:
    with pytest.raises(LidflError, match="option 'iterations' of aggregator 'gm' is given twice"):
        aggregator.resolve("gm:3,iterations=4")


def test_a_name_that_is_taken_elsewhere_is_refused() -> None:
    def gm() -> None:
        """Another rule of that name."""

    with pytest.raises(
        TypeError, match=r"aggregator 'gm' exists already, in lidfl\.methods\.aggregators\.paper; rename yours"
    ):
        aggregator(gm)


def test_a_function_that_says_nothing_of_itself_is_listed_all_the_same() -> None:
    silent: Registry[int] = Registry("silent")
    silent.functions["quiet"] = lambda: 1
    assert ("quiet", "", "") in silent.describe()
