"""Whether every link of a built site leads somewhere, and whether it needs nothing from elsewhere."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


@dataclass
class Page(HTMLParser):
    """The links of a page, what it loads, and the places in it that can be linked to."""

    path: Path
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    places: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take note of a tag."""
        values = {name: value for name, value in attrs if value}
        self.places |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        loads = "href" if tag == "link" and values.get("rel") != "canonical" else "src"
        if loads in values:
            self.loaded.append(values[loads])


read = cache(Page)


def faults_of_site(site: Path) -> list[str]:
    """Every link to nowhere, and everything that would be fetched from elsewhere."""
    return [fault for path in sorted(site.rglob("*.html")) for fault in faults_of_page(site, path)]


def faults_of_page(site: Path, path: Path) -> Iterator[str]:
    """The faults of one page."""
    page = read(path)
    yield from (f"{path}: loads {url} from elsewhere" for url in page.loaded if _is_elsewhere(url))
    for url in (*page.links, *page.loaded):
        if not _is_elsewhere(url) and not leads_somewhere(site, path, url):
            yield f"{path}: {url} leads nowhere"


def leads_somewhere(site: Path, path: Path, url: str) -> bool:
    """Whether a link of the site leads to a file, and its anchor to a place in that."""
    parts = urlsplit(url)
    start = site if parts.path.startswith("/") else path.parent
    found = start / unquote(parts.path).lstrip("/") if parts.path else path
    found = found / "index.html" if found.is_dir() else found
    if not found.is_file():
        return False
    return not parts.fragment or found.suffix != ".html" or unquote(parts.fragment) in read(found).places


def _is_elsewhere(url: str) -> bool:
    return bool(urlsplit(url).scheme or urlsplit(url).netloc)
