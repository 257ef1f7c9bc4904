"""`lidfl server` looks at what it is given before it makes or starts anything."""

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from cryptography import x509
from cryptography.x509 import DNSName, SubjectAlternativeName

from lidfl.flower.signing import make_server_key
from lidfl.flower.template import write_app
from tests.command import lidfl_here


def said(capsys: pytest.CaptureFixture[str]) -> str:
    """What a command that failed has told, which is one line."""
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize(
    "host",
    ["", "bad host;", "10.0.0.256", "10.0.0.1:9443", "https://example.org", "a-.org", "7", "a..b", "ü.org", "a\n"],
)
def test_a_name_that_no_certificate_can_have_is_refused_before_anything_is_made(
    host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "federation"
    assert lidfl_here("server", "init", folder, "--hosts", "good.example.org", host) == 2
    assert "is neither a name nor an address; say --hosts federation.example.org 10.0.0.1" in said(capsys)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--public", "0.0.0.0:9443 ssl; }"], "the proxy cannot listen at"),
        (["--public", "0.0.0.0:0"], "the proxy cannot listen at"),
        (["--public", "0.0.0.0"], "say --public 0.0.0.0:9443"),
        (["--port", "65536"], "--port must be from 1 to 65535, not 65536"),
    ],
)
def test_where_nothing_can_listen_is_refused_before_anything_is_made(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "federation"
    assert lidfl_here("server", "init", folder, "--hosts", "good.example.org", *options) == 2
    assert message in said(capsys)
    assert not folder.exists()


def test_names_and_addresses_that_are_some_are_in_the_certificate(tmp_path: Path) -> None:
    hosts = ["server", "federation.example.org", "10.77.0.1", "fe80::1", "*.example.org", "my_server"]
    public = ("--public", "[::]:9443")
    assert lidfl_here("server", "init", tmp_path, *public, "--hosts", *hosts) == 0
    names = x509.load_pem_x509_certificate((tmp_path / "server.crt").read_bytes()).extensions
    known = names.get_extension_for_class(SubjectAlternativeName).value
    assert set(known.get_values_for_type(DNSName)) == {"localhost", *hosts} - {"10.77.0.1", "fe80::1"}
    assert "listen [::]:9443 ssl;" in (tmp_path / "nginx.conf").read_text()


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A server's folder, and what was started in it."""
    calls: list[str] = []
    for name in ("link.run_superlink", "serving.attend"):
        monkeypatch.setattr(f"lidfl.flower.{name}", lambda *_, name=name, **__: calls.append(name))
    monkeypatch.setattr("os.environ", {})
    monkeypatch.chdir(tmp_path)
    make_server_key(tmp_path / "signing.key")
    return calls


@pytest.mark.parametrize("text", [None, "", "[project]\nname = 'no app'", "[tool]\nflwr = 3"])
def test_what_is_no_app_is_told_before_a_superlink_starts(
    text: str | None, started: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / "nope").mkdir()
        (tmp_path / "nope" / "pyproject.toml").write_text(text)
    assert lidfl_here("server", "up", ".", "--insecure", "--app", "nope") == 2
    line = said(capsys)
    assert "nope is not a Flower app" in line
    assert "lidfl init-flower writes one" in line
    assert not started
    write_app(tmp_path / "an_app")
    assert lidfl_here("server", "up", ".", "--insecure", "--app", "an_app") == 0
    assert started == ["serving.attend", "link.run_superlink"]
