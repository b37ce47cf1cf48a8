"""The wheel brings what its commands need, so that they work without a checkout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pytest

ROOT: Final = Path(__file__).parents[2]
ASKED: Final = (
    "from twinstore_backfill.demo.loading import shipped_folder as f; print(f('api'), f('service'))"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel and unpack it, as an installation does."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with ZipFile(wheel) as packed:
        packed.extractall(folder / "site")
    return folder / "site"


def test_the_demo_of_a_wheel_finds_its_samples_and_its_service(site: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-B", "-c", ASKED],
        cwd=site,
        env={"PYTHONPATH": str(site)},
        check=True,
        capture_output=True,
        text=True,
    )
    api, service = map(Path, done.stdout.split())
    assert site in api.parents
    assert {path.name for path in (api / "scheduler").iterdir()} == {
        path.name for path in (ROOT / "samples/api/scheduler").iterdir()
    }
    assert (service / "scheduler_service/__main__.py").is_file()


def test_no_test_and_no_cache_is_in_the_wheel(site: Path) -> None:
    assert {path.name for path in site.iterdir() if not path.name.endswith(".dist-info")} == {
        "twinstore",
        "twinstore_backfill",
        "twinstore_filesystem",
        "twinstore_embedded",
        "twinstore_memory",
        "twinstore_mongo",
        "twinstore_postgres",
    }
    assert not [*site.rglob("__pycache__"), *site.rglob("test_*.py")]


def test_a_report_of_a_wheel_finds_its_templates(site: Path) -> None:
    folder = Path("twinstore_backfill", "report", "templates")
    names = {path.name for path in (ROOT / "tools" / "backfill" / folder).iterdir()}
    assert (
        names == {path.name for path in (site / folder).iterdir()} == {"page.html", "parts.html", "page.css"}
    )
