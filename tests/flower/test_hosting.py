"""Folders with keys: nobody else reads them, and none outlives its process for long."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from lidfl.flower.hosting import private_folder

CODE = """
import sys, time
from lidfl.flower.hosting import private_folder
with private_folder("lidfl-test-") as folder:
    (folder / "secret.key").write_text("secret")
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def start() -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen([sys.executable, "-c", CODE], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    with process.stdout as told:
        return process, Path(told.readline().strip())


def test_keys_that_a_killed_process_left_are_removed_by_the_next_start() -> None:
    killed, left = start()
    alive, theirs = start()
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert (left / "secret.key").exists()
    with private_folder("lidfl-test-") as folder:
        assert not left.exists()
        assert (theirs / "secret.key").exists(), "its process lives"
        assert folder.stat().st_mode & 0o077 == 0
    assert not folder.exists()
    alive.kill()
    alive.wait()


def test_a_folder_that_is_just_being_made_is_left_alone() -> None:
    made = Path(tempfile.mkdtemp(prefix="lidfl-test-"))
    with private_folder("lidfl-test-"):
        assert made.exists()
    os.utime(made, (0, 0))
    with private_folder("lidfl-test-"):
        assert not made.exists()
