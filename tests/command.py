"""Runs the real command in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def start(*arguments: object, cwd: Path) -> subprocess.Popen[str]:
    """Start `lidfl …`."""
    command = [sys.executable, "-m", "lidfl", *map(str, arguments)]
    return subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def lidfl(*arguments: object, cwd: Path, expect: int = 0) -> tuple[str, str]:
    """Run `lidfl …` to its end; its standard output and standard error."""
    process = start(*arguments, cwd=cwd)
    out, err = process.communicate(timeout=120)
    assert process.returncode == expect, f"exit {process.returncode}\n{out}\n{err}"
    return out, err


def lines_without_times(run: Path) -> list[dict[str, Any]]:
    """The records of a run, less what differs from one run to the next."""
    lines = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in ("seconds", "phases")} for line in lines]
