"""What a server does beside its SuperLink: the roll of nodes, the start of a run, the proxy's configuration."""

import logging
import subprocess
import threading
from pathlib import Path
from time import sleep

import httpx

from lidfl.errors import LidflError
from lidfl.flower.hosting import CONNECTION, await_port, connection
from lidfl.flower.registration import Registrar
from lidfl.flower.roll import write_names

log = logging.getLogger("flwr")

ROLL = "roll.json"
"""The file of a server's folder with the name and the node of every key that is registered."""
LOOK = 5.0
"""Seconds between two looks at the roll."""
PROXY = """# Lets clients reach Flower's fleet API and nothing else. Paths are relative to this file.
worker_processes auto;

events {}

http {
    access_log off;

    # What one address can open and ask. A node asks about ten times a round; let more through for hosts of many.
    limit_conn_zone $binary_remote_addr zone=connections:1m;
    limit_req_zone $binary_remote_addr zone=requests:1m rate=50r/s;

    server {
        listen LISTEN ssl;
        ssl_certificate server.crt;
        ssl_certificate_key server.key;

        # A model travels in pieces of 5 MB, each a request of its own. What is larger is not from Flower.
        client_max_body_size 8m;
        client_body_timeout 30s;
        client_header_timeout 10s;
        limit_conn connections 64;
        limit_req zone=requests burst=200;

        # The control API (/v1/control/) would let anybody register keys and start code, the runtime API
        # (/v1/runtime/) is for the server's own processes: neither is for clients.
        location / {
            return 403;
        }
        location = /v1/fleet/register-node {
            return 403;
        }
        location = /v1/fleet/unregister-node {
            return 403;
        }
        location /v1/fleet/ {
            proxy_pass https://SUPERLINK;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_ssl_verify on;
            proxy_ssl_trusted_certificate ca.crt;
            proxy_ssl_name localhost;
            proxy_read_timeout 120s;
        }
    }
}
"""


def write_proxy(folder: Path, public: str, port: int) -> None:
    """Write the configuration of nginx for a server in a folder."""
    text = PROXY.replace("LISTEN", public).replace("SUPERLINK", f"127.0.0.1:{port}")
    (folder / "nginx.conf").write_text(text)


def attend(folder: Path, port: int, *, insecure: bool, app: Path | None, config: str) -> None:
    """Keep the roll and start the run, beside a SuperLink that is about to start."""
    ca = None if insecure else folder / "ca.crt"
    flower_home = folder / "flwr"
    if not (folder / "config.toml").exists():  # else the folder itself is Flower's
        flower_home.mkdir(exist_ok=True)
        (flower_home / "config.toml").write_text(connection(port, ca))
    if (insecure and app is None) or (not insecure and app is None and not (folder / "nodes").exists()):
        return

    def work() -> None:
        await_port(port)
        seen: list[str] | None = None
        if not insecure:
            seen = keep_roll(folder, port, seen)
        if app:
            submit(app, config)
        while not insecure:
            sleep(LOOK)
            seen = keep_roll(folder, port, seen)

    threading.Thread(target=work, daemon=True).start()


def keep_roll(folder: Path, port: int, seen: list[str] | None) -> list[str] | None:
    """Register the keys that are in the roll, if it has changed, and no others; what is there now.

    Before the first look nothing was seen: keys that were removed while the server was away go then, even if it is
    all of them. A folder that is not there is no empty roll.
    """
    names = seen
    try:
        if not (folder / "nodes").is_dir():
            return seen
        files = keys_in(folder / "nodes")
        names = [f"{file.name} {file.stat().st_mtime_ns}" for file in files]
        if names == seen:
            return seen
        with Registrar(f"127.0.0.1:{port}", folder / "ca.crt") as registrar:
            change = registrar.set_roll(files, remove=True)
        write_names(folder / ROLL, change.nodes)
        log.info("the roll has %d nodes: %d new, %d gone", len(change.nodes), change.new, change.gone)
    except LidflError as error:  # said once: it takes a change of the files to mend it
        log.error("the roll is left as it is: %s", error)
    except (httpx.HTTPError, OSError) as error:  # a disk that is full, a file that was removed meanwhile
        log.error("the roll is left as it is, until the next look: %s", error)
        return seen
    return names


def keys_in(folder: Path) -> list[Path]:
    """The files of a roll; a link whose file is gone is a key that was removed."""
    return [file for file in sorted(folder.glob("*.pub")) if file.exists()]


def submit(app: Path, config: str) -> None:
    """Start a run of an app."""
    command = ["flwr", "run", str(app), CONNECTION, *(["-c", config] if config else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    text = (done.stdout + done.stderr).strip()
    (log.error if done.returncode else log.info)("%s: %s", " ".join(command), text[-400:])
