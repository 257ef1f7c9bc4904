"""The site is built without a warning, and no link of it leads nowhere."""

from pathlib import Path

import pytest

from handbook import build
from handbook.links import faults_of_site


def put(site: Path, name: str, body: str) -> None:
    (site / name).parent.mkdir(parents=True, exist_ok=True)
    (site / name).write_text(f"<html><body>{body}</body></html>")


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<a href="other.html">', ""),
        ('<a href="other.html#here">', ""),
        ('<a href="deep/">', ""),
        ('<a href="/deep/index.html">', ""),
        ('<a href="https://example.org/x">', ""),
        ('<a href="mailto:a@example.org">', ""),
        ('<a href="#top"><p id="top">', ""),
        ('<a href="gone.html">', "gone.html leads nowhere"),
        ('<a href="other.html#gone">', "other.html#gone leads nowhere"),
        ('<a href="#gone">', "#gone leads nowhere"),
        ('<img src="gone.svg">', "gone.svg leads nowhere"),
        ('<script src="https://example.org/x.js">', "loads https://example.org/x.js from elsewhere"),
        (
            '<link rel="stylesheet" href="//fonts.example.org/x.css">',
            "loads //fonts.example.org/x.css from elsewhere",
        ),
        ('<link rel="canonical" href="https://example.org/">', ""),
    ],
)
def test_a_link_to_nowhere_and_a_thing_from_elsewhere_are_faults(tmp_path: Path, body: str, fault: str) -> None:
    put(tmp_path, "other.html", '<p id="here">')
    put(tmp_path, "deep/index.html", '<a href="../other.html#here">')
    put(tmp_path, "page.html", body)
    assert faults_of_site(tmp_path) == ([f"{tmp_path / 'page.html'}: {fault}"] if fault else [])


def test_links_that_leave_the_docs_become_absolute_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("src/code.py", "docs/a.md", "docs/deep/b.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(build, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(build, "REPOSITORY", "https://example.org/x")
    page = tmp_path / "docs" / "deep" / "b.md"
    page.write_text(
        "[code](../../src/code.py) [room](../../src) "
        "[a](../a.md#top) [me](#here) [far](https://x.org) [gone](../../no)"
    )
    assert build.on_the_site(page) == (
        "[code](https://example.org/x/blob/main/src/code.py) [room](https://example.org/x/tree/main/src) "
        "[a](../a.md#top) [me](#here) [far](https://x.org) [gone](../../no)"
    )
