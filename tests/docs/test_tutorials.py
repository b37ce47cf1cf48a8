"""The three newcomers' paths, replayed from the pages alone by a normal user in an empty folder."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from tests.docs.pages import DOCS, ROOT, TUTORIALS, blocks
from tests.docs.tutorials import Replay, open_folder
from tests.support.distributions import normal_user, python_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.distributions import Installed

pytestmark = pytest.mark.long

VENV: Final = "python3 -m venv .venv"
INSTALL: Final = "pip install 'twinstore[all]'"


@pytest.fixture
def newcomer() -> Iterator[Replay]:
    """Return a normal user in an empty folder, who types what the page says."""
    who = normal_user()
    with open_folder(who) as folder:
        yield Replay(folder, who, python_for(who), {})


@pytest.mark.smoke
def test_there_is_a_tutorial_for_each_newcomer() -> None:
    assert [page.stem for page in TUTORIALS] == [
        "tutorial-migration",
        "tutorial-pipeline",
        "tutorial-service",
    ]


@pytest.mark.smoke
def test_the_pipeline_of_the_tutorial_is_that_of_the_samples() -> None:
    shown = {block.file: block.body for block in blocks(DOCS / "tutorial-pipeline.md")}
    for name in ("job.toml", "pipeline.sh"):
        assert shown[name] == (ROOT / "samples/ci" / name).read_text("utf-8"), name


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_says_what_happens(page: Path, newcomer: Replay, installed: Installed) -> None:
    instead = {VENV: f"ln -s {installed.environment} .venv", INSTALL: "true"}
    replace(newcomer, instead=instead).run(page)


@pytest.mark.long
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
@pytest.mark.parametrize("origin", ["wheel", "checkout"])
def test_a_tutorial_says_what_happens_from_its_first_line(
    page: Path, origin: str, newcomer: Replay, installed: Installed
) -> None:
    place = clone_of(newcomer) if origin == "checkout" else installed.wheel
    line = f"pip install '{place}[all]'"
    replace(newcomer, instead={INSTALL: line}).run(page)


def clone_of(newcomer: Replay) -> Path:
    """Clone the repository for the newcomer, who owns the clone."""
    place = newcomer.folder / "checkout"
    # Without links to our own files, whose owner would change as well.
    clone = ["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(place)]
    subprocess.run(clone, check=True, capture_output=True)
    if newcomer.who is not None:
        for path in (place, *place.rglob("*")):
            os.chown(path, newcomer.who.uid, newcomer.who.gid, follow_symlinks=False)
    return place
