"""Runs the command: in a process of its own, or in this one, which is faster."""

import contextlib
import io
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from lidfl.cli.main import main


def start(*arguments: object, cwd: Path) -> subprocess.Popen[str]:
    """Start `lidfl …`; it heeds Ctrl-C even where these tests do not, as under `nohup … &`."""
    command = [sys.executable, "-m", "lidfl", *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=cwd, stdout=pipe, stderr=pipe, text=True, preexec_fn=heed_ctrl_c)


def heed_ctrl_c() -> None:
    """Undo what is inherited from a shell that starts things in the background: SIGINT is ignored there."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def lidfl(*arguments: object, cwd: Path, expect: int = 0) -> tuple[str, str]:
    """Run `lidfl …` to its end; its standard output and standard error."""
    process = start(*arguments, cwd=cwd)
    out, err = process.communicate(timeout=120)
    assert process.returncode == expect, f"exit {process.returncode}\n{out}\n{err}"
    return out, err


def lidfl_inside(*arguments: object, cwd: Path, expect: int = 0) -> tuple[str, str]:
    """Run `lidfl …` to its end in this process; the same as by `lidfl`, without a second and a half of imports."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = lidfl_here(*arguments)
    assert code == expect, f"exit {code}\n{out.getvalue()}\n{err.getvalue()}"
    return out.getvalue(), err.getvalue()


def lidfl_here(*arguments: object) -> int:
    """Run `lidfl …` in this process and its working directory; its exit code."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        with patch.object(sys, "argv", ["lidfl", *map(str, arguments)]), patch.object(sys, "path", [*sys.path]):
            main()
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0


def wait_until(holds: Callable[[], bool], otherwise: str, seconds: float = 60) -> None:
    """Wait for something that another process does, but not for ever."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.005)


def lines_without_times(run: Path) -> list[dict[str, Any]]:
    """The records of a run, less what differs from one run to the next."""
    lines = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in ("seconds", "phases")} for line in lines]
