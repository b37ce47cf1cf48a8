"""The sdist is complete: the wheel made of it is that of the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Final
from zipfile import ZipFile

import pytest
from packaging.metadata import Metadata

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.long

ROOT: Final = Path(__file__).parents[2]


def build(kind: str, project: Path, folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    # A library that is compiled to run fast takes as long to compile as all else here.
    environment = {**os.environ, "CFLAGS": "-O0"}
    subprocess.run(command, cwd=project, env=environment, check=True, capture_output=True)
    (built,) = folder.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return built


def content(wheel: Path) -> Iterator[tuple[str, bytes]]:
    with ZipFile(wheel) as packed:
        yield from ((name, packed.read(name)) for name in packed.namelist())


def test_the_wheel_of_the_sdist_is_that_of_the_checkout(tmp_path: Path) -> None:
    sdist = build("sdist", ROOT, tmp_path / "sdist")
    with tarfile.open(sdist) as packed:
        packed.extractall(tmp_path, filter="data")
    project = tmp_path / sdist.name.removesuffix(".tar.gz")
    for part in ("tests", "docs", "samples", "benchmarks", "CHANGELOG.md", "LICENSE", "Makefile"):
        assert (project / part).exists(), part
    of_sdist = dict(content(build("wheel", project, tmp_path / "of-sdist")))
    of_checkout = dict(content(build("wheel", ROOT, tmp_path / "of-checkout")))
    assert of_sdist.keys() == of_checkout.keys()
    assert [name for name, text in of_sdist.items() if text != of_checkout[name]] == []


def test_the_metadata_are_valid(tmp_path: Path) -> None:
    (text,) = (
        text for name, text in content(build("wheel", ROOT, tmp_path)) if name.endswith(".dist-info/METADATA")
    )
    found = Metadata.from_email(text, validate=True)
    assert (found.name, found.description_content_type) == ("twinstore", "text/markdown")
