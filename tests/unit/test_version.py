"""The version that the package tells is the one it was released with."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest

import twinstore
from twinstore.released import current

PYPROJECT: Final = Path(__file__).parents[2] / "pyproject.toml"
WRITTEN: Final = tomllib.loads(PYPROJECT.read_text())["project"]["version"]


def test_the_package_tells_the_version_of_its_project() -> None:
    assert twinstore.__version__ == WRITTEN
    assert "__version__" in twinstore.__all__


def test_outside_a_checkout_it_is_that_of_the_installed_distribution(tmp_path: Path) -> None:
    assert current(tmp_path / "pyproject.toml") == version("twinstore")


@pytest.mark.parametrize("text", ['[project]\nname = "theirs"\nversion = "7.0"\n', "", "[tool.other]\n"])
def test_the_project_around_it_is_not_taken_for_its_own(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(text)
    assert current(path) == version("twinstore")


def test_a_checkout_with_a_newer_number_than_at_its_installation_tells_the_newer_one(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text('[project]\nname = "twinstore"\nversion = "9.9.9"\n')
    assert current(path) == "9.9.9"


def test_to_open_a_storage_imports_nothing_that_only_some_need() -> None:
    program = (
        "import sys; from twinstore import open_storage;"
        "print({'asyncio', 'croniter', 'psycopg', 'pydantic_settings', 'pymongo', 'yaml'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_who_does_not_ask_for_it_imports_nothing_for_it() -> None:
    program = (
        "import sys, twinstore; print([name for name in sys.modules if name.startswith('twinstore.')]);"
        "print(twinstore.__version__, sorted(name for name in sys.modules if name.startswith('twinstore.')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", f"{WRITTEN} ['twinstore.released']"]
