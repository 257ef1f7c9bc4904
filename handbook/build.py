"""The site, from docs/ into site/, with every warning an error.

    python -m handbook.build

Zensical checks links between pages. What it does not see is checked here: images and other files, links that leave
docs/ for the repository, which have to be absolute on the site, and that nothing is fetched from elsewhere.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from handbook.links import faults_of_site

ROOT = Path(__file__).parents[1]
DOCS, COPY, SITE = ROOT / "docs", ROOT / "build" / "docs", ROOT / "site"
REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]

LINK = re.compile(r"(\]\()(?!\w+:|#)([^)\s#]+)")
"""A Markdown link's relative target, without its anchor."""


def copy_docs() -> None:
    """Copy docs/, with links to other files of the repository made absolute."""
    shutil.rmtree(COPY, ignore_errors=True)
    shutil.copytree(DOCS, COPY)
    for page in COPY.rglob("*.md"):
        page.write_text(on_the_site(DOCS / page.relative_to(COPY)))


def on_the_site(page: Path) -> str:
    """A page with the links that it has on the site."""
    return LINK.sub(lambda link: link[1] + target(page, link[2]), page.read_text())


def target(page: Path, link: str) -> str:
    """What a page's link is on the site: itself, or an address if it leaves docs/."""
    place = (page.parent / link).resolve()
    if place.is_relative_to(DOCS) or not place.exists():
        return link  # a link to nowhere is found by the checks
    kind = "tree" if place.is_dir() else "blob"
    return f"{REPOSITORY}/{kind}/main/{place.relative_to(ROOT)}"


def build() -> list[str]:
    """Build the site; what is wrong with it."""
    copy_docs()
    shutil.rmtree(SITE, ignore_errors=True)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        return [re.sub(r"\x1b\[[0-9;]*m", "", done.stdout).strip()]
    return faults_of_site(SITE)


if __name__ == "__main__":
    faults = build()
    sys.stderr.write("".join(f"{fault}\n" for fault in faults))
    sys.exit(1 if faults else 0)
