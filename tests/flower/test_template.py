"""The app that `lidfl init-flower` writes."""

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from lidfl import LidflError
from lidfl.flower.template import write_app


def test_the_example_is_what_init_flower_writes(tmp_path: Path) -> None:
    write_app(tmp_path / "flower-app")
    example = Path(__file__).parents[2] / "examples" / "flower-app"
    written = sorted(path.relative_to(tmp_path / "flower-app") for path in (tmp_path / "flower-app").rglob("*.*"))
    assert len(written) == 6
    for path in written:
        assert (example / path).read_text() == (tmp_path / "flower-app" / path).read_text()
    with pytest.raises(LidflError, match="not empty"):
        write_app(tmp_path / "flower-app")
