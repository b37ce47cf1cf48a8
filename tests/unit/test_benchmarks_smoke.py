"""The benchmark runs on small numbers against real servers. Nothing here looks at a clock."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.awaited.__main__ import main as awaited
from benchmarks.awaited.calls import CALLS
from benchmarks.groups import FURTHER, GROUPS

SMALL = (
    *("--documents", "120", "--operations", "20", "--runs", "1", "--workers", "1", "--seconds", "0.01"),
    *("--entity-megabytes", "0.02", "--sizes", "60", "120"),
)
# At least one of each kind; the full form runs all of them.
BOUNDED = ("copy", "postgres", "postgres-claims", "postgres-firing", "mongo-lives", "mongo-locks")


@pytest.fixture(scope="module")
def groups(*, long_form: bool) -> tuple[str, ...]:
    return (*GROUPS, *FURTHER) if long_form else BOUNDED


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    # Not below the root of pytest: each session of pytest that starts closes that to everybody else, and
    # PostgreSQL runs as an account of its own.
    with TemporaryDirectory(prefix="twinstore-workspace-") as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def results(place: Path, groups: tuple[str, ...]) -> dict[str, Any]:
    main([*SMALL, "--directory", str(place), "--only", *groups])
    content: dict[str, Any] = json.loads((place / "results.json").read_text(encoding="utf-8"))
    return content


def test_groups_and_cases_have_a_sample_per_round(results: dict[str, Any], groups: tuple[str, ...]) -> None:
    assert list(results["groups"]) == list(groups)
    for group in results["groups"].values():
        for case in group["cases"].values():
            assert len(case["samples"]) == 1
            assert 0 < case["per_second"]["min"] <= case["per_second"]["median"] <= case["per_second"]["max"]


def test_the_tables_name_every_way_and_every_goal(results: dict[str, Any], place: Path) -> None:
    tables = (place / "results.md").read_text(encoding="utf-8")
    for name, group in results["groups"].items():
        own = name in {"entities", "waits", "scale"}  # tables that name what they compare
        assert own or all(case.removesuffix(", 1") in tables for case in group["cases"])
    assert all(goal["text"] in tables for goal in results["goals"])


@pytest.mark.parametrize("library", ["procrastinate", "apscheduler"])
def test_another_library_is_measured_where_it_is_installed(results: dict[str, Any], library: str) -> None:
    cases = results["groups"]["postgres-claims"]["cases"]
    assert any(name.startswith(library) for name in cases) is (find_spec(library) is not None)
    assert {"bare, one, 1", "lease, one, 1"} <= set(cases)


def test_workers_and_server_tell_their_processor_time(results: dict[str, Any]) -> None:
    client, _ = results["groups"]["postgres-claims"]["cases"]["lease, one, 1"]["processor_us"]
    assert client > 0


def test_every_goal_is_judged_and_none_asserts(results: dict[str, Any]) -> None:
    assert {type(goal["reached"]) for goal in results["goals"]} == {bool}
    assert {"x", "MB"} <= {goal["unit"] for goal in results["goals"]} <= {"x", "x the time", "MB"}


def test_the_memory_of_the_command_line_is_recorded(results: dict[str, Any]) -> None:
    case = results["groups"]["copy"]["cases"]["first copy"]
    assert case["peak_mb"] > 20
    # What the watcher takes, it takes from the copy: a walk over all processes took a fifth of a core.
    assert 0 < case["watcher_of_a_core"] < 0.05


def test_versions_and_machine_are_recorded(results: dict[str, Any]) -> None:
    assert {"cpu", "cores", "python", "mongodb", "postgresql", "pymongo", "psycopg"} <= set(
        results["machine"]
    )


@pytest.mark.long
def test_asyncio_is_measured_every_way_on_both_stores(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    awaited(["--rounds", "1", "--seconds", "0.02", "--at-once", "4", "--directory", str(place)])
    shown = capsys.readouterr().out
    assert all(shown.count(f"│ {call} ") == 2 for call in CALLS)
    assert shown.count("twinstore.aio") == shown.count("native / aio") == 2
