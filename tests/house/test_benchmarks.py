"""The benchmarks run on small numbers against real servers. Nothing here reads a clock."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.__main__ import main
from benchmarks.groups import FURTHER, GROUPS

SMALL: Final = (
    *("--documents", "120", "--operations", "20", "--runs", "1", "--workers", "1", "--seconds", "0.01"),
    *("--entity-megabytes", "0.02", "--sizes", "60", "120"),
)


def test_every_case_has_a_sample_a_round_and_every_goal_is_judged(*, long_form: bool) -> None:
    groups = (*GROUPS, *FURTHER) if long_form else ("postgres",)
    # Not below the root of pytest, which only its user may enter: PostgreSQL runs as another account.
    with TemporaryDirectory(prefix="twinstore-workspace-") as place:
        main([*SMALL, "--directory", place, "--only", *groups])
        results: dict[str, Any] = json.loads(Path(place, "results.json").read_text(encoding="utf-8"))
        assert Path(place, "results.md").stat().st_size > 0
    assert list(results["groups"]) == list(groups)
    for group in results["groups"].values():
        for case in group["cases"].values():
            assert len(case["samples"]) == 1
            assert 0 < case["per_second"]["min"] <= case["per_second"]["median"] <= case["per_second"]["max"]
    assert {type(goal["reached"]) for goal in results["goals"]} <= {bool}
    assert {"cpu", "cores", "python", "mongodb", "postgresql", "pymongo", "psycopg"} <= set(
        results["machine"]
    )
