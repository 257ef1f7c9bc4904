"""Processes that are found and ended, however this one ends.

Every process that is started, and every one that those start, carries a mark in its environment, by which it is
found and ended; should this process be killed, the kernel ends its children, and theirs end by themselves.
"""

import os
import secrets
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

from lidfl.errors import LidflError
from lidfl.flower.hosting import START_UP, die_with_parent

MARK = "LIDFL_FEDERATION"


class Processes:
    """Processes by name; what each prints goes to a log of that name."""

    def __init__(self, logs: Path, environment: Mapping[str, str]) -> None:
        self.logs = logs
        self.mark = secrets.token_hex(8)
        self.environment = {**environment, MARK: self.mark}
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def __getitem__(self, name: str) -> subprocess.Popen[bytes]:
        return self._started[name]

    def start(self, name: str, *command: object) -> None:
        """Start a process that lives until it is stopped."""
        with (self.logs / f"{name}.log").open("ab") as log:
            self._started[name] = subprocess.Popen(
                [*map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def finish(self, *command: object) -> str:
        """Run a command to its end; what it prints."""
        words = [*map(str, command)]
        done = subprocess.run(
            words, capture_output=True, text=True, env=self.environment, timeout=START_UP, check=False
        )
        if done.returncode:
            raise LidflError(f"{' '.join(words[:3])} failed: {(done.stdout + done.stderr).strip()[-400:]}")
        return done.stdout

    def check(self, name: str) -> None:
        """Raise if a process has ended by itself."""
        if self[name].poll() is not None:
            raise LidflError(f"{name} has ended; see {self.logs / f'{name}.log'}")

    def kill(self, name: str) -> None:
        """End a process without a warning, as a fault would; what it started ends by itself."""
        os.killpg(self[name].pid, signal.SIGKILL)
        self[name].wait()

    def stop(self) -> None:
        """End every process that carries the mark, kindly first."""
        for grace, number in ((3.0, signal.SIGTERM), (5.0, signal.SIGKILL)):
            for pid in marked(self.mark):
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            until = monotonic() + grace
            while list(marked(self.mark)) and monotonic() < until:
                for process in self._started.values():
                    process.poll()
                sleep(0.1)
        for process in self._started.values():
            process.wait()


def marked(mark: str) -> Iterator[int]:
    """The processes that carry a mark."""
    sign = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if sign in (entry / "environ").read_bytes().split(b"\0"):
                    yield int(entry.name)


@contextmanager
def interrupted_once() -> Iterator[None]:
    """Take the first Ctrl-C and no other: an impatient user must not interrupt the end, which takes seconds."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)

    def interrupt(*_: object) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
