"""What the processes of a host share: their environment, their folders, and the programs that they run.

A server's folder:

| file | what it is |
|---|---|
| `ca.crt`, `ca.key` | who vouches for the server; `ca.crt` goes to every node |
| `server.crt`, `server.key` | the server's certificate |
| `signing.key`, `signing.key.pub` | what requests are signed with; the .pub goes to every node |
| `nodes/*.pub` | the keys that may take part: add a file to add a node, remove it to remove one |
| `roll.json` | the name and the node of every key that is registered, for the server's app to read |
| `state.db`, `flwr/` | what Flower keeps |
| `nginx.conf` | the proxy to put before it |

A node's folder has `node.key`, `node.key.pub`, which goes to the server, `ca.crt` and `signing.key.pub`.
"""

import ctypes
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep, time

from lidfl.errors import LidflError

CONNECTION = "here"
"""What Flower's command line calls our SuperLink."""
START_UP = 180.0
"""Seconds for a server, a run or a command to come up: several Python processes on a busy machine."""
FRESH = 60.0
"""Seconds for which a folder without a lock may be one that is just being made."""


def environment(flower_home: Path, commands: Path | None = None) -> dict[str, str]:
    """The environment of Flower's processes: our commands first, nothing fetched or reported.

    The server's SuperExec has one task to find, its app, and each question costs the SuperLink 8 ms.
    """
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    quiet |= {"FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1"}
    speed = {"OMP_NUM_THREADS": "1", "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "1"}
    path = [*([str(commands)] if commands else []), str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    ours = {"PATH": os.pathsep.join(path), "FLWR_HOME": str(flower_home)}
    return speed | dict(os.environ) | quiet | ours


def connection(port: int, ca: Path | None) -> str:
    """The config.toml by which Flower's commands find the SuperLink of this machine."""
    trust = f'root-certificates = "{ca}"' if ca else "insecure = true"
    return f'[superlink.{CONNECTION}]\naddress = "127.0.0.1:{port}"\n{trust}\n'


def link_arguments(folder: Path, port: int, *, insecure: bool) -> list[str]:
    """What a SuperLink in this folder is started with."""
    where = ["--host", "127.0.0.1", "--port", str(port), "--database", str(folder / "state.db")]
    if insecure:
        return [*where, "--insecure"]
    files = {"--ssl-ca-certfile": "ca.crt", "--ssl-certfile": "server.crt", "--ssl-keyfile": "server.key"}
    secure = [word for flag, name in files.items() for word in (flag, str(folder / name))]
    return [*where, "--enable-supernode-auth", *secure]


def needed(*files: Path, how: str) -> None:
    """Refuse to start without these files, and say how to get them."""
    for file in files:
        if not file.exists():
            raise LidflError(f"{file} is missing; {how}")


# Folders


@contextmanager
def private_folder(prefix: str) -> Iterator[Path]:
    """A folder in the temporary folder that others cannot read, for as long as a context.

    What an earlier process left there, since it was killed, is removed first: it may hold keys.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        _remove_if_abandoned(left)
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    with (folder / "lock").open("w") as lock:  # held until this process ends, however it ends
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_if_abandoned(folder: Path) -> None:
    """Remove a folder of ours whose process is gone."""
    with suppress(OSError):
        if folder.stat().st_uid != os.getuid():
            return
        if not (folder / "lock").exists():
            if time() - folder.stat().st_mtime > FRESH:
                shutil.rmtree(folder, ignore_errors=True)
            return
        with (folder / "lock").open("r") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises while its process lives
            shutil.rmtree(folder, ignore_errors=True)


# Processes


def start_nursery(folder: Path, more: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """Start a nursery whose commands are in `folder`/bin; it ends with this process."""
    from lidfl.flower.nursery import write_command

    write_command(folder / "bin", folder / "nursery")
    command = [sys.executable, "-m", "lidfl.flower.nursery", str(folder / "nursery"), *more]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)


def die_with_parent() -> None:
    """Let the kernel end this process when the one that started it ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG; Linux only, like all that starts processes here


def free_port() -> int:
    """A port of loopback that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    """Whether something on loopback takes connections at a port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def await_port(port: int) -> None:
    """Wait until something listens at a port."""
    until = monotonic() + START_UP
    while not listens(port):
        if monotonic() > until:
            raise LidflError(f"nothing comes up at port {port}; see what the SuperLink printed")
        sleep(0.2)
