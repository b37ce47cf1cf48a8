"""The three newcomers' paths, replayed from the pages alone by a normal user in an empty folder."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

import pytest

from tests.docs.pages import DOCS, ROOT, TUTORIALS, blocks
from tests.installed import normal_user, python_for
from tests.tutorials.replay import Replay, open_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.installed import Account, Installed

VENV: Final = "python3 -m venv .venv"
INSTALL: Final = "pip install 'twinstore[all]'"


@pytest.fixture(scope="module")
def who() -> Account | None:
    return normal_user()


@pytest.fixture(scope="module")
def python(who: Account | None) -> str:
    return python_for(who)


@pytest.fixture
def folder(who: Account | None) -> Iterator[Path]:
    with open_folder(who) as folder:
        yield folder


def test_there_is_a_tutorial_for_each_newcomer() -> None:
    assert [page.stem for page in TUTORIALS] == ["tutorial-migration", "tutorial-pipeline", "tutorial-service"]


def test_the_pipeline_of_the_tutorial_is_that_of_the_samples() -> None:
    shown = {block.file: block.body for block in blocks(DOCS / "tutorial-pipeline.md")}
    for name in ("job.toml", "pipeline.sh"):
        assert shown[name] == (ROOT / "samples/ci" / name).read_text("utf-8"), name


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_says_what_happens(
    page: Path, folder: Path, installed: Installed, who: Account | None, python: str
) -> None:
    instead = {VENV: f"ln -s {installed.environment} .venv", INSTALL: "true"}
    Replay(folder, who, python, instead).run(page)


@pytest.mark.long
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
@pytest.mark.parametrize("origin", ["wheel", "checkout"])
def test_a_tutorial_says_what_happens_from_the_first_line(
    page: Path, origin: str, folder: Path, installed: Installed, who: Account | None, python: str
) -> None:
    clone = f"git -c safe.directory='*' clone --quiet {ROOT} checkout"
    line = {
        "wheel": f"pip install '{installed.wheel}[all]'",
        "checkout": f"{clone} && pip install './checkout[all]'",
    }
    begun = monotonic()
    Replay(folder, who, python, {INSTALL: line[origin]}).run(page)
    print(f"\n{page.stem} from the {origin}: {monotonic() - begun:.0f} s")
