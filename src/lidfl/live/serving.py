"""The port of the live page: on this machine only, and only for those who ask for this machine.

A browser can be led by a foreign page to call a port of loopback under another name; the name in the request is
checked, nothing can be changed by a request, and the page may load nothing from elsewhere.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs

from lidfl.errors import LidflError
from lidfl.live.metrics import TYPE, metrics
from lidfl.live.watch import Watch

HERE = "127.0.0.1"
NAMES = {HERE, "localhost"}
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
PAGE = Path(__file__).with_name("page.html")


@contextmanager
def served(watch: Watch, port: int) -> Iterator[str]:
    """Serve the page for as long as the context is open; its address. Port 0 is any that is free."""

    class Handler(Answering):
        watched = watch

    try:
        server = ThreadingHTTPServer((HERE, port), Handler)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or "ports are 1 to 65535"
        raise LidflError(f"cannot serve the live page at port {port}: {reason}; choose another") from None
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=(0.2,), daemon=True)
    thread.start()
    try:
        yield f"http://{HERE}:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Answering(BaseHTTPRequestHandler):
    """Answers for the page, its numbers and its metrics."""

    watched: Watch

    def do_GET(self) -> None:
        """Answer a request."""
        if self.headers.get("Host", "").rpartition(":")[0] not in NAMES:
            self._send(403, "text/plain", b"")
            return
        path, _, query = self.path.partition("?")
        if path == "/":
            self._send(200, "text/html; charset=utf-8", PAGE.read_bytes())
        elif path == "/state.json":
            state = self.watched.state(since(query))
            self._send(200, "application/json", json.dumps(state).encode())
        elif path == "/metrics":
            self._send(200, TYPE, metrics(self.watched).encode())
        else:
            self._send(404, "text/plain", b"")

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing: the run's own log is what people read."""


def since(query: str) -> int:
    """The round from which on a page wants to be told; from the first if what it says is no number."""
    try:
        return int(parse_qs(query)["since"][0])
    except (KeyError, ValueError):  # ValueError: "²", or thousands of digits
        return 0
