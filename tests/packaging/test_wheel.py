"""The wheel brings what its commands need, so that they work without a checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from email import message_from_string
from pathlib import Path
from typing import TYPE_CHECKING, Final
from zipfile import ZipFile

import pytest
from packaging.version import Version

from hatch_build import COMPILERS, platform
from hatch_version import NEXT_RELEASE

if TYPE_CHECKING:
    from email.message import Message

ROOT: Final = Path(__file__).parents[2]
ASKED: Final = "from twinstore_backfill.demo.data import shipped_folder as f; print(f('api'), f('service'))"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel and unpack it, as an installation does."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    # A library that is compiled to run fast takes as long to compile as all else here.
    environment = {**os.environ, "CFLAGS": "-O0"}
    subprocess.run(build, cwd=ROOT, env=environment, check=True, capture_output=True)
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


def test_a_wheel_with_the_library_is_for_this_platform_and_every_python(site: Path) -> None:
    (made,) = site.glob("*.dist-info/WHEEL")
    told = message_from_string(made.read_text())
    if not any(map(shutil.which, COMPILERS)):
        assert told["Tag"] == "py3-none-any"
        return
    assert told["Tag"] == f"py3-none-{platform()}"
    assert told["Root-Is-Purelib"] == "false"
    assert not {path.suffix for path in (site / "twinstore/fast").iterdir()} & {".c", ".h", ".txt"}
    asked = "from twinstore.fast.library import LIBRARY, fast_path as f; print(f(), LIBRARY.parents[2])"
    done = subprocess.run(
        [sys.executable, "-B", "-c", asked],
        cwd=site,
        env={"PYTHONPATH": str(site)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["native", str(site)]


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


@pytest.mark.parametrize("part", ["report", "serve"])
def test_a_page_of_a_wheel_finds_its_templates(part: str, site: Path) -> None:
    folder = Path("twinstore_backfill", part, "templates")
    names = {path.name for path in (ROOT / "tools" / "backfill" / folder).iterdir()}
    assert names == {path.name for path in (site / folder).iterdir()}
    assert {Path(name).suffix for name in names} == {".html", ".css", ".js"}


@pytest.fixture(scope="module")
def metadata(site: Path) -> Message:
    """Return what an index shows of the wheel."""
    (path,) = site.glob("*.dist-info/METADATA")
    return message_from_string(path.read_text())


def test_the_description_leads_to_no_page_that_a_wheel_has_not(metadata: Message) -> None:
    text = str(metadata.get_payload())
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert re.findall(r"\]\((?!https?://)[^)]*\)", text) == []
    # The words of the links stay.
    assert "tracking of sessions, tasks and" in text
    assert text.count("```") == (ROOT / "README.md").read_text().count("```")


def test_its_metadata_says_what_it_is_for(metadata: Message) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    kinds = {kind.partition(" :: ")[0] for kind in metadata.get_all("Classifier", [])}
    assert kinds >= {"Framework", "Operating System", "Programming Language", "Topic", "Typing"}
    assert metadata["Author"] == metadata["Maintainer"] == project["authors"][0]["name"]
    assert metadata["License-Expression"] == "Apache-2.0"
    assert Version(metadata["Version"]).release == Version(NEXT_RELEASE).release
    assert set(metadata.get_all("Provides-Extra", [])) == set(project["optional-dependencies"])


def test_no_address_is_invented(metadata: Message) -> None:
    """Neither of people nor of pages: an address that does not answer is worse than none."""
    assert metadata.get_all("Project-URL") is None
    assert "@" not in f"{metadata['Author']} {metadata['Author-email']}"
