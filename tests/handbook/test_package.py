"""What is published: wheel and sdist have everything in them, and installed they work."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.handbook.pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = ("3.11", "3.12", "3.13")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


def wheel_of(folder: Path) -> Path:
    (wheel,) = folder.glob("*.whl")
    return wheel


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


def test_the_wheel_holds_the_whole_package_and_nothing_else(built: Path) -> None:
    with zipfile.ZipFile(wheel_of(built)) as archive:
        names = set(archive.namelist())
    source = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src" / "lidfl").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".pyc", ".so")
    }
    assert source <= names
    assert "lidfl/experiments/femnist-lr-0.6.toml" in names
    assert {name.partition("/")[0] for name in names} == {"lidfl", f"lidfl-{PROJECT['version']}.dist-info"}


def test_from_the_sdist_comes_the_same_wheel(built: Path, tmp_path: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    with zipfile.ZipFile(wheel_of(tmp_path)) as ours, zipfile.ZipFile(wheel_of(built)) as theirs:
        assert {i.filename: i.CRC for i in ours.infolist()} == {i.filename: i.CRC for i in theirs.infolist()}


def test_where_the_package_is_shown_every_link_of_its_readme_is_absolute(built: Path) -> None:
    text = str(metadata_of(wheel_of(built)).get_payload())
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert len(targets) > 20
    for target in targets:
        assert target.startswith(("https://", "#")), target
    repository = PROJECT["urls"]["Repository"]
    assert f"({repository}/blob/main/docs/theory.md)" in text
    assert f"({repository}/raw/main/docs/headline.svg)" in text


def test_the_package_says_who_made_it_where_it_lives_and_on_what_it_runs(built: Path) -> None:
    metadata = metadata_of(wheel_of(built))
    classifiers = metadata.get_all("Classifier") or []
    for python in PYTHONS:
        assert f"Programming Language :: Python :: {python}" in classifiers
        assert SpecifierSet(metadata["Requires-Python"]).contains(python)
    assert metadata["Author"]
    assert {url.partition(",")[0] for url in metadata.get_all("Project-URL") or []} >= {
        "Repository",
        "Paper",
        "Issues",
    }


def test_everything_that_a_clone_needs_is_pinned_with_hashes_but_for_torch() -> None:
    blocks = (ROOT / "requirements.lock").read_text().replace("\\\n", " ").splitlines()
    pinned = {}
    for line in blocks:
        if line and not line.startswith("#"):
            words, _, hashes = line.partition(" --hash=")
            requirement = Requirement(words)
            pinned[canonicalize_name(requirement.name)] = requirement
            assert str(requirement.specifier).startswith("==")
            assert hashes.startswith("sha256:")
    wanted = {canonicalize_name(need.name) for need in needs("dev")} - {"lidfl", "torch"}
    assert wanted <= pinned.keys(), "requirements.lock is behind pyproject.toml: make lock"
    assert not any(name.startswith(("torch", "nvidia-", "cuda-", "triton")) for name in pinned)
    assert "torch==2.13.0" in (ROOT / "constraints.txt").read_text().splitlines()


def needs(extra: str) -> set[Requirement]:
    """What the package needs, with an extra and those that it names."""
    found, extras = {Requirement(text) for text in PROJECT["dependencies"]}, {extra}
    while extras:
        for text in PROJECT["optional-dependencies"][extras.pop()]:
            need = Requirement(text)
            found.add(need)
            extras |= need.extras if need.name == "lidfl" else set()
    return found


@pytest.mark.package
@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_installed_into_a_clean_environment_it_runs(built: Path, tmp_path: Path, kind: str) -> None:
    """With the pins of constraints.txt, from the network; the demo, a report, and none of the tests' own tools."""
    (package,) = built.glob(kind)
    venv.create(tmp_path / "clean", with_pip=True)
    python = tmp_path / "clean" / "bin" / "python"
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def run(*words: object) -> str:
        done = subprocess.run([*map(str, words)], cwd=tmp_path, env=clean, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    pinned = ["--constraint", ROOT / "constraints.txt"]
    torch = [["uv", "pip", "install", "--python", python], [python, "-m", "pip", "install", "--quiet"]]
    run(*(torch[0] if "UV_TORCH_BACKEND" in os.environ else torch[1]), *pinned, "torch")
    run(python, "-m", "pip", "install", "--quiet", *pinned, package)
    lidfl = tmp_path / "clean" / "bin" / "lidfl"
    assert run(lidfl, "--version") == f"lidfl {PROJECT['version']}\n"
    assert "runs/demo.html" in run(lidfl, "demo")
    assert "femnist-lr-0.6" in run(lidfl, "reproduce", "list")
    assert "site-packages" in run(python, "-c", "import lidfl; print(lidfl.__file__)")
    assert run(python, "-c", "import importlib.util as i; print(i.find_spec('pytest'))") == "None\n"
