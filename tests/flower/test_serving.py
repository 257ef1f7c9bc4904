"""The roll that a server keeps: files of keys on the one hand, what Flower has registered on the other."""

import errno
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import ClassVar

import httpx
import pytest

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from lidfl.errors import LidflError
from lidfl.flower import serving
from lidfl.flower.registration import Change
from lidfl.flower.roll import read_names
from lidfl.flower.serving import ROLL, keep_roll


class FakeRegistrar:
    """Flower's control API, which sometimes fails."""

    failures: ClassVar[list[Exception]] = []
    asked = 0

    def __init__(self, *_: object) -> None: ...

    def __enter__(self) -> "FakeRegistrar":
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None: ...

    def set_roll(self, files: Iterable[Path], *, remove: bool) -> Change:
        assert remove
        type(self).asked += 1
        if self.failures:
            raise self.failures.pop()
        return Change(1, 0, {file.stem: 100 + place for place, file in enumerate(sorted(files))})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(serving, "Registrar", FakeRegistrar)
    monkeypatch.setattr(FakeRegistrar, "asked", 0)
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "one.pub").touch()
    return tmp_path


def test_the_roll_is_written_by_name_and_asked_for_only_when_files_change(folder: Path) -> None:
    seen = keep_roll(folder, 1, None)
    assert read_names(folder / ROLL) == {"one": 100}
    assert keep_roll(folder, 1, seen) == seen
    assert FakeRegistrar.asked == 1
    (folder / "nodes" / "two.pub").touch()
    seen = keep_roll(folder, 1, seen)
    assert read_names(folder / ROLL) == {"one": 100, "two": 101}
    (folder / "nodes" / "one.pub").unlink()
    keep_roll(folder, 1, seen)
    assert read_names(folder / ROLL) == {"two": 100}


def test_what_fails_on_the_way_is_tried_again_and_a_bad_file_is_told_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeRegistrar, "failures", [httpx.ConnectError("gone")])
    seen = keep_roll(folder, 1, None)
    assert not (folder / ROLL).exists()
    seen = keep_roll(folder, 1, seen)
    assert read_names(folder / ROLL) == {"one": 100}
    monkeypatch.setattr(FakeRegistrar, "failures", [LidflError("no key")])
    (folder / "nodes" / "bad.pub").touch()
    asked = FakeRegistrar.asked
    for _ in range(3):
        seen = keep_roll(folder, 1, seen)
    assert FakeRegistrar.asked == asked + 1
    assert read_names(folder / ROLL) == {"one": 100}, "those who are on it stay"


def test_keys_that_were_all_removed_while_the_server_was_away_are_gone_at_its_first_look(folder: Path) -> None:
    (folder / "nodes" / "one.pub").unlink()
    seen = keep_roll(folder, 1, None)
    assert FakeRegistrar.asked == 1
    assert keep_roll(folder, 1, seen) == []
    assert FakeRegistrar.asked == 1
    (folder / "nodes").rmdir()
    assert keep_roll(folder, 1, ["one.pub 0"]) == ["one.pub 0"]
    assert FakeRegistrar.asked == 1, "a folder that is gone is no empty roll"


def test_a_link_that_leads_nowhere_is_a_key_that_was_removed_and_holds_up_no_other(folder: Path) -> None:
    key = folder / "elsewhere"
    key.touch()
    (folder / "nodes" / "two.pub").symlink_to(key)
    seen = keep_roll(folder, 1, None)
    assert read_names(folder / ROLL) == {"one": 100, "two": 101}
    key.unlink()
    (folder / "nodes" / "three.pub").touch()
    keep_roll(folder, 1, seen)
    assert read_names(folder / ROLL) == {"one": 100, "three": 101}


@pytest.mark.parametrize("place", ["keys_in", "write_names"])
def test_a_full_disk_or_a_file_that_is_gone_is_one_line_and_the_next_look_mends_it(
    folder: Path, place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(serving.log, "propagate", True)

    def fails(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(serving, place, fails)
        seen = keep_roll(folder, 1, None)
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [
        "the roll is left as it is, until the next look: [Errno 28] No space left on device"
    ]
    assert keep_roll(folder, 1, seen) != seen
    assert read_names(folder / ROLL) == {"one": 100}
