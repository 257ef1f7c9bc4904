"""Client apps that start in a tenth of a second.

Flower starts `flwr-clientapp` anew for every message, and most of the time goes into imports: over a second for
Flower, two for torch. A nursery is one process that has imported both and forks a client app whenever one is asked
for. Flower looks for its command in PATH, so it is enough to put a folder with a command of that name first; if the
nursery is gone, that command runs Flower's own. Each message still has a process of its own.
"""

import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

COMMAND = "flwr-clientapp"
SCRIPT = """#!{python} -IS
import json, os, socket, sys
try:
    nursery = socket.socket(socket.AF_UNIX)
    nursery.connect({address!r})
    birth = {{"argv": sys.argv, "env": dict(os.environ), "cwd": os.getcwd()}}
    socket.send_fds(nursery, [json.dumps(birth).encode()], [1, 2])
    nursery.shutdown(socket.SHUT_WR)
    nursery.recv(1)
except OSError:
    os.execv({original!r}, sys.argv)
"""


def write_command(folder: Path, address: Path) -> None:
    """Put the command into a folder that comes first in PATH."""
    folder.mkdir(exist_ok=True)
    original = shutil.which(COMMAND, path=str(Path(sys.executable).parent)) or COMMAND
    script = folder / COMMAND
    script.write_text(SCRIPT.format(python=sys.executable, address=str(address), original=original))
    script.chmod(0o700)


PRELOADED = (
    *("flwr.supernode.cli", "httpcore", "encodings.cp437"),
    *("sklearn.datasets", "lidfl.flower.client", "lidfl.flower.worker"),
)
"""What every client app imports, with what httpx and zipfile import when they are first used; the app of
`lidfl init-flower` has its digits from scikit-learn."""


def tend(address: str, more: Sequence[str] = ()) -> None:
    """Fork a client app for everyone who asks, until this process is ended."""
    for module in (*PRELOADED, *more):
        with suppress(ImportError):  # it would be told by the client app that needs it
            import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        while True:
            caller, _ = listener.accept()
            birth, files = _receive(caller)
            if os.fork() == 0:
                listener.close()
                _live(birth, files, caller)
            for file in files:
                os.close(file)
            caller.close()


def _receive(caller: socket.socket) -> tuple[dict[str, Any], list[int]]:
    text, files, _, _ = socket.recv_fds(caller, 1 << 16, 2)
    while part := caller.recv(1 << 16):
        text += part
    return json.loads(text), files


def _live(birth: dict[str, Any], files: list[int], caller: socket.socket) -> None:
    """Become the client app that was asked for."""
    from flwr.supernode.cli import flwr_clientapp

    from lidfl.flower.store import AFTERWARDS

    AFTERWARDS.waiting = []
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for standard, file in zip((1, 2), files, strict=True):
        os.dup2(file, standard)
    caller.close()
    os.environ.clear()
    os.environ.update(birth["env"])
    os.chdir(birth["cwd"])
    sys.argv = birth["argv"]
    code = 1
    try:
        flwr_clientapp()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        with suppress(Exception):  # the reply is out: what is left is this node's own affair
            AFTERWARDS.do()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    tend(sys.argv[1], sys.argv[2:])
