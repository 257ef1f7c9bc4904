"""The reference says what the code does, today."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from handbook.reference import NOTE, PAGES, PLACE, prose, table
from lidfl.cli.main import COMMANDS
from lidfl.settings.experiment import Experiment
from lidfl.theory import Question


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_the_reference_is_what_the_code_says_today(name: str) -> None:
    assert (PLACE / name).read_text() == NOTE + PAGES[name](), f"docs/reference/{name} is stale: make reference"


def test_every_command_and_every_setting_is_there() -> None:
    commands, settings = (PLACE / "commands.md").read_text(), (PLACE / "settings.md").read_text()
    assert re.findall(r"^## lidfl (\S+)$", commands, flags=re.MULTILINE) == [*COMMANDS]
    rows = re.findall(r"^\| `(\w+)` \|", settings.partition("## Defaults")[0], flags=re.MULTILINE)
    assert rows == [field.name for field in fields(Experiment)]
    assert "| `--from-round` |" in commands


def test_no_address_of_this_process_and_no_number_of_its_cores_gets_into_a_page() -> None:
    for name in PAGES:
        assert " at 0x" not in (PLACE / name).read_text()
    assert "| `--workers` | How many runs at a time. | one a core |" in (PLACE / "commands.md").read_text()


def test_plain_text_stays_itself_in_markdown() -> None:
    assert prose("a_b * [c] |d| `e_f|g` <h>") == r"a\_b \* \[c\] \|d\| `e_f\|g` \<h\>"
    assert prose("one\ntwo\n\nthree") == "one two<br>three"
    assert table(("a", "b"), [("1", "2")]) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"


def test_every_name_in_the_glossary_is_one_of_the_code() -> None:
    text = (PLACE / "glossary.md").read_text()
    source = "\n".join(path.read_text() for path in Path("src/lidfl").resolve().rglob("*.py"))
    known = {field.name for cls in (Experiment, Question) for field in fields(cls)}
    symbols = text.partition("## Words")[0]
    names = [
        name
        for row in re.findall(r"^\| [^|]+ \| ([^|]+) \|", symbols, flags=re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    ]
    assert len(names) > 20
    for name in names:
        assert name in known or re.search(rf"\b{name}\b", source), name
