"""``make test-changed`` runs the test files that execute what has changed, and all where it cannot know."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.support import changed, executed
from tests.support.changed import Choice, NotKnownError, base, changed_since, choose

if TYPE_CHECKING:
    from pathlib import Path

PAGING: Final = "tests/unit/test_paging.py"
TESTS: Final = (
    "tests/docs/test_names.py",
    "tests/packaging/test_ci_samples.py",
    "tests/docs/test_tutorials.py",
    PAGING,
    "tests/packaging/test_sdist.py",
)
KNOWN: Final = {
    "core/twinstore/access/paging.py": [PAGING, "tests/docs/test_tutorials.py"],
    "tests/support/toolkit.py": ["tests/packaging/test_ci_samples.py"],
    PAGING: [PAGING],
    "core/twinstore/gone.py": [PAGING, "tests/unit/test_gone.py"],
}
PAGES: Final = {"tests/docs/test_names.py", "tests/docs/test_tutorials.py"}
READERS: Final = {*PAGES, "tests/packaging/test_ci_samples.py"}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Make a repository with a commit on main."""
    folder = tmp_path / "checkout"
    for name in ("core/twinstore/access/paging.py", "core/twinstore/new.py", "core/native/one.c", *TESTS):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    (folder / "data.json").write_text("{}")
    git(folder, "init", "--initial-branch=main")
    commit(folder)
    return folder


def git(folder: Path, *words: str) -> str:
    """Run git as a test user."""
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    return subprocess.check_output(["git", *who, *words], cwd=folder, text=True).strip()  # noqa: S607  # from the path


def commit(folder: Path) -> str:
    """Commit all files; return the commit."""
    git(folder, "add", "--all")
    git(folder, "commit", "--message=a")
    return git(folder, "rev-parse", "HEAD")


@pytest.mark.parametrize(
    ("name", "files", "whole"),
    [
        # A product file selects the tests that execute it; those of the long run stay in the long run.
        ("core/twinstore/access/paging.py", {PAGING, "tests/docs/test_tutorials.py"}, set()),
        # Files of tests, pages and samples run all of what they concern.
        (
            "tests/support/toolkit.py",
            {"tests/packaging/test_ci_samples.py"},
            {"tests/packaging/test_ci_samples.py"},
        ),
        (PAGING, {PAGING}, {PAGING}),
        ("docs/page.md", PAGES, PAGES),
        ("README.md", PAGES, PAGES),
        ("samples/ci/job.toml", READERS, READERS),
        # A file that is gone concerns those who executed it and are still there.
        ("core/twinstore/gone.py", {PAGING}, set()),
        ("tests/unit/test_gone.py", set(), set()),
    ],
)
def test_a_change_concerns_the_files_that_execute_it(
    checkout: Path, name: str, files: set[str], whole: set[str]
) -> None:
    choice = choose([name], KNOWN, checkout)
    assert choice == Choice(frozenset(files), frozenset(whole))


@pytest.mark.parametrize(
    "name",
    ["core/native/one.c", "data.json", "core/twinstore/new.py", "tests/conftest.py", "samples/api/a.json"],
)
@pytest.mark.parametrize("gone", [False, True])
def test_all_tests_run_for_a_file_that_the_map_cannot_know(checkout: Path, name: str, *, gone: bool) -> None:
    (checkout / name).parent.mkdir(parents=True, exist_ok=True)
    (checkout / name).write_text("")
    if gone:
        (checkout / name).unlink()
    known = {**KNOWN, "tests/conftest.py": [PAGING]}
    assert [name in line for line in choose([name], known, checkout).unknown] == [True]


def test_builds_run_whole_after_a_change_of_what_they_are_made_from(checkout: Path) -> None:
    assert choose(["core/native/one.c"], KNOWN, checkout).whole == {"tests/packaging/test_sdist.py"}


def test_changes_count_from_where_a_branch_left_main(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BASE", raising=False)
    left = git(checkout, "rev-parse", "HEAD")
    git(checkout, "switch", "--create", "branch")
    (checkout / "data.json").unlink()
    commit(checkout)
    (checkout / "core/twinstore/access/paging.py").write_text("x = 1")
    (checkout / "with ü and space.py").write_text("")
    git(checkout, "switch", "main")
    (checkout / "on main.py").write_text("")
    git(checkout, "add", "on main.py")
    git(checkout, "commit", "--message=b")
    git(checkout, "switch", "branch")
    assert base(checkout) == left
    assert changed_since(left, checkout) == [
        "core/twinstore/access/paging.py",
        "data.json",
        "with ü and space.py",
    ]


def test_changes_on_main_count_from_the_last_commit_that_passed(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BASE", raising=False)
    passed = tmp_path / "kept" / "passed"
    with pytest.raises(NotKnownError, match="make test has not passed here yet"):
        base(checkout, passed)
    noting = changed.PassedCommitPlugin(passed)
    noting.pytest_sessionfinish(pytest.ExitCode.TESTS_FAILED)
    assert not passed.exists()
    noting.pytest_sessionfinish(pytest.ExitCode.OK)
    assert base(checkout, passed) == git(executed.ROOT, "rev-parse", "HEAD")


def test_base_names_another_commit(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = git(checkout, "rev-parse", "HEAD")
    (checkout / "data.json").unlink()
    commit(checkout)
    monkeypatch.setenv("BASE", "HEAD~1")
    assert base(checkout) == first
    monkeypatch.setenv("BASE", "nowhere")
    with pytest.raises(NotKnownError, match="git rev-parse failed: fatal"):
        base(checkout)


def test_a_commit_that_is_gone_is_not_known(checkout: Path) -> None:
    with pytest.raises(NotKnownError, match="git diff failed"):
        changed_since("0" * 40, checkout)


@pytest.mark.long
def test_the_map_of_a_run_names_what_its_process_and_its_forks_execute(tmp_path: Path) -> None:
    target = tmp_path / "map.json"
    names = [PAGING, "tests/migration_tool/cli/test_options.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", f"--write-map={target}", *names]
    subprocess.run([*command, "-k", "row_more or not_read_to_its_end"], cwd=executed.ROOT, check=True)
    found = json.loads(target.read_text())
    assert found[PAGING] == [PAGING]
    assert PAGING in found["core/twinstore/access/paging.py"]
    assert found["tools/backfill/twinstore_backfill/cli/config.py"] == [
        "tests/migration_tool/cli/test_options.py"
    ]
