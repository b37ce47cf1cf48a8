"""The version that the package reports is that of its build, and each build has the number of its commits."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest
from packaging.version import Version

import twinstore
from hatch_version import NEXT_RELEASE, VARIABLE

ROOT: Final = Path(__file__).parents[2]
COMMITS: Final = 3
WITHOUT_HISTORY: Final = f"{NEXT_RELEASE}.dev0+unknown"
# What starts a process, in the words of sys.addaudithook.
STARTS: Final = {"os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen"}


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.invalid")
    command = ["git", *identity, *words]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def version_of(folder: Path) -> str:
    """Return the version that a build in a folder has."""
    found: str = runpy.run_path(str(folder / "hatch_version.py"))["version"]()
    return found


@pytest.fixture(autouse=True)
def _from_no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a repository with the files that a version needs, whose last commit has a tag."""
    folder = tmp_path_factory.mktemp("tagged")
    git(folder, "init", "--quiet")
    for name in ("hatch_version.py", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    git(folder, "add", ".")
    for number in range(COMMITS):
        git(folder, "commit", "--quiet", "--allow-empty", "--message", str(number))
    git(folder, "tag", "v7.0.0")
    return folder


def clone(origin: Path, folder: Path, *options: str) -> Path:
    git(origin, "clone", "--quiet", *options, origin.as_uri(), str(folder))
    return folder


def test_clones_of_a_commit_have_the_number_of_its_commits_with_and_without_tags(
    tagged: Path, tmp_path: Path
) -> None:
    with_tags = clone(tagged, tmp_path / "with")
    without_tags = clone(tagged, tmp_path / "without", "--no-tags")
    git(without_tags, "tag", "v0.0.1", "HEAD~1")
    of_a_worktree = tmp_path / "worktree"
    git(with_tags, "worktree", "add", "--quiet", str(of_a_worktree))
    (with_tags / "pyproject.toml").write_text("changed")
    found = {version_of(folder) for folder in (tagged, with_tags, without_tags, of_a_worktree)}
    assert found == {f"{NEXT_RELEASE}.dev{COMMITS}"}


def test_each_commit_makes_a_newer_version_and_the_release_is_the_newest(
    tagged: Path, tmp_path: Path
) -> None:
    folder = clone(tagged, tmp_path / "clone")
    before = Version(version_of(folder))
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "one more")
    assert Version("0.1.0") < Version(WITHOUT_HISTORY) < before < Version(version_of(folder))
    assert Version(version_of(folder)) < Version(NEXT_RELEASE)


@pytest.mark.parametrize("options", [(), ("--no-tags",)], ids=["with the tag", "without tags"])
def test_a_shallow_clone_is_not_built_and_one_sentence_says_what_to_do(
    tagged: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    shallow = clone(tagged, tmp_path / "clone", "--depth", "1", *options)
    git(shallow, "worktree", "add", "--quiet", str(tmp_path / "worktree"))
    for folder in (shallow, tmp_path / "worktree"):
        done = hatchling_version(folder)
        said = done.stderr.splitlines()[-1]
        assert done.returncode != 0
        assert said.startswith("RuntimeError: ")
        assert "a shallow clone" in said
        assert "`git fetch --unshallow`" in said
        assert VARIABLE in said
    assert hatchling_version(shallow, "7.1.0").stdout == "7.1.0\n"
    git(shallow, "fetch", "--quiet", "--unshallow")
    assert hatchling_version(shallow).stdout == f"{NEXT_RELEASE}.dev{COMMITS}\n"


def hatchling_version(folder: Path, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hatchling", "version"],
        cwd=folder,
        env={**os.environ, VARIABLE: given},
        check=False,
        capture_output=True,
        text=True,
    )


def test_a_tree_without_history_is_built_also_inside_of_another_repository(
    tagged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = clone(tagged, tmp_path / "around") / "inside"
    folder.mkdir()
    shutil.copy(ROOT / "hatch_version.py", folder)
    # As git does for its hooks.
    monkeypatch.setenv("GIT_DIR", str(tagged / ".git"))
    assert version_of(folder) == WITHOUT_HISTORY
    # As a worktree that is sent without its repository, as to a container.
    (folder / ".git").write_text(f"gitdir: {tmp_path}/elsewhere\n")
    assert version_of(folder) == WITHOUT_HISTORY
    monkeypatch.setenv("PATH", str(tmp_path))
    assert version_of(tagged) == WITHOUT_HISTORY


def test_the_package_reports_the_version_of_its_installation() -> None:
    assert twinstore.__version__ == version("twinstore")
    assert "__version__" in twinstore.__all__


def test_no_process_is_started_to_import_it_or_to_report_its_version() -> None:
    program = (
        "import sys; started = []; "
        f"sys.addaudithook(lambda event, _: started.append(event) if event in {STARTS} else None); "
        "import twinstore, twinstore_mongo, twinstore_postgres; from twinstore_backfill.cli import version; "
        "print(next(version.version_lines()), started)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"twinstore {version('twinstore')} []"


def test_to_open_a_storage_imports_nothing_that_only_some_need() -> None:
    program = (
        "import sys; from twinstore import open_storage;"
        "print({'asyncio', 'croniter', 'psycopg', 'pydantic_settings', 'pymongo', 'yaml'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("driver", ["Mongo", "Postgres"])
def test_a_module_is_opened_without_other_modules_and_what_tools_use(driver: str) -> None:
    url = {"Mongo": "mongodb://127.0.0.1:1/app", "Postgres": "postgresql://app@127.0.0.1:1/app"}[driver]
    settings = {"Persistence": {"Scheduler": driver, driver: {"ConnectionString": url}}}
    package = f"twinstore_{driver.lower()}"
    unused = {"croniter", "twinstore.ledger", "twinstore.tracking.catalog", f"{package}.bulk.port"}
    program = (
        "import sys; from twinstore import open_storage\n"
        f"with open_storage({settings!r}) as storage: storage.scheduler.runs\n"
        f"print({unused!r} & {{*sys.modules}})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_who_does_not_ask_for_it_imports_nothing_for_it() -> None:
    program = (
        "import sys, twinstore; print([name for name in sys.modules if name.startswith('twinstore.')]);"
        "print(twinstore.__version__, sorted(name for name in sys.modules if name.startswith('twinstore.')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "['twinstore.runtime', 'twinstore.runtime.moved_modules']",
        "{} ['twinstore.runtime', 'twinstore.runtime.moved_modules', 'twinstore.runtime.version']".format(
            version("twinstore")
        ),
    ]
