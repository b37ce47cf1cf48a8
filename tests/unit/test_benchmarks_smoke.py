"""The benchmark runs on small numbers against real servers. Nothing here looks at a clock."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.groups import GROUPS

SMALL = ("--documents", "120", "--operations", "20", "--runs", "1")


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    # Not below the root of pytest: each session of pytest that starts closes that to everybody else, and
    # PostgreSQL runs as an account of its own.
    with TemporaryDirectory(prefix="twinstore-workspace-") as place:
        main([*SMALL, "--directory", place])
        content: dict[str, Any] = json.loads((Path(place) / "results.json").read_text(encoding="utf-8"))
        return content


def test_every_group_and_case_has_a_sample_per_round(results: dict[str, Any]) -> None:
    assert list(results["groups"]) == list(GROUPS)
    for group in results["groups"].values():
        for case in group["cases"].values():
            assert len(case["samples"]) == 1
            assert 0 < case["per_second"]["min"] <= case["per_second"]["median"] <= case["per_second"]["max"]


def test_every_goal_is_judged_and_none_asserts(results: dict[str, Any]) -> None:
    assert {type(goal["reached"]) for goal in results["goals"]} == {bool}
    assert {goal["unit"] for goal in results["goals"]} == {"x", "MB"}


def test_the_memory_of_the_command_line_is_recorded(results: dict[str, Any]) -> None:
    assert results["groups"]["copy"]["cases"]["first copy"]["peak_mb"] > 20


def test_versions_and_machine_are_recorded(results: dict[str, Any]) -> None:
    assert {"cpu", "cores", "python", "mongodb", "postgresql", "pymongo", "psycopg"} <= set(
        results["machine"]
    )
