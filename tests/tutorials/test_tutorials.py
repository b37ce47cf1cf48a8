"""The three newcomers' paths, replayed from the pages alone by a normal user in an empty folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.docs.pages import DOCS, ROOT
from tests.tutorials.replay import Replay, account, open_folder, python_of, run_as

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.tutorials.terminal import Account

VENV: Final = "python3 -m venv .venv"
INSTALL: Final = "pip install 'twinstore[all]'"
# The one program of another distribution that a page calls by its name.
SERVER: Final = "#!{python}\nfrom uvicorn import main\n\nmain()\n"
PAGES: Final = tuple(sorted(DOCS.glob("tutorial-*.md")))


@pytest.fixture(scope="module")
def who() -> Account | None:
    return account()


@pytest.fixture(scope="module")
def python(who: Account | None) -> str:
    return python_of(who)


@pytest.fixture(scope="module")
def wheel() -> Iterator[Path]:
    """Build the wheel where every user may read it."""
    with open_folder(None) as folder:
        folder.chmod(0o755)
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
        subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
        (built,) = folder.glob("*.whl")
        yield built


@pytest.fixture(scope="module")
def installed(who: Account | None, python: str, wheel: Path) -> Iterator[Path]:
    """Install the wheel into an environment that finds what it needs in ours, and no twinstore there."""
    with open_folder(who) as folder:
        venv = folder / "venv"
        run_as(who, [python, "-m", "venv", str(venv)])
        (site,) = venv.glob("lib/python*/site-packages")
        # A path in such a file is searched, but the files of this kind in it are not read: so our checkout,
        # which stands in one of them, stays unknown.
        (ours,) = {path for path in map(Path, sys.path) if path.name == "site-packages"}
        (site / "of_the_tests.pth").write_text(f"{ours}\n")
        run_as(who, [f"{venv}/bin/python", "-m", "pip", "install", "--no-deps", "--no-index", str(wheel)])
        (venv / "bin/uvicorn").write_text(SERVER.format(python=venv / "bin/python"))
        (venv / "bin/uvicorn").chmod(0o755)
        yield venv


@pytest.fixture
def folder(who: Account | None) -> Iterator[Path]:
    with open_folder(who) as folder:
        yield folder


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_says_what_happens(
    page: Path, folder: Path, installed: Path, who: Account | None, python: str
) -> None:
    instead = {VENV: f"ln -s {installed} .venv", INSTALL: "true"}
    Replay(folder, who, python, instead).run(page)


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
@pytest.mark.parametrize("origin", ["wheel", "checkout"])
def test_a_tutorial_says_what_happens_from_the_first_line(
    page: Path, origin: str, folder: Path, wheel: Path, who: Account | None, python: str
) -> None:
    clone = f"git -c safe.directory='*' clone --quiet {ROOT} checkout"
    line = {
        "wheel": f"pip install '{wheel}[all]'",
        "checkout": f"{clone} && pip install './checkout[all]'",
    }
    Replay(folder, who, python, {INSTALL: line[origin]}).run(page)
