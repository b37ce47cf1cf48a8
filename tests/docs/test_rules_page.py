"""The page on rules shows a job file that is accepted; its JSON Schema accepts the same files."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from docs.parts.rules import schema_files
from twinstore.scheduler.catalog import SCHEDULER
from twinstore_backfill.rules.checking import check_rules
from twinstore_backfill.rules.forms import FORMS
from twinstore_backfill.rules.job_file import read_job_file

PAGE = Path(__file__).parents[2] / "docs" / "rules.md"


def example() -> str:
    """Return the job file of the page."""
    found = re.search(r"^```toml\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    """Return the JSON Schema in the package, which is that of the code."""
    ((path, text),) = schema_files().items()
    assert path.read_text("utf-8") == text, "out of date: run `make docs`"
    found: dict[str, Any] = json.loads(text)
    Draft202012Validator.check_schema(found)
    return found


def test_the_example_is_accepted(tmp_path: Path, schema: dict[str, Any]) -> None:
    file = tmp_path / "job.toml"
    file.write_text(example())
    rules = read_job_file(file).rules
    check_rules(rules, SCHEDULER.entities)
    assert len(rules.rules) == example().count("[[")
    Draft202012Validator(schema).validate(tomllib.loads(example()))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("reason =", "raeson ="),
        ('kind = "text_timestamp"', 'kind = "text_timestamps"'),
        ('"unique:tenant_name"', '"unique"'),
        ("most = 18", 'most = "18"'),
        ('"epoch-milliseconds"]', "7]"),
        ('values = { done = "completed", CANCELLED = "cancelled" }', 'values = { done = ["completed"] }'),
    ],
)
def test_the_schema_finds_what_an_editor_should_mark(right: str, wrong: str, schema: dict[str, Any]) -> None:
    assert right in example()
    assert not Draft202012Validator(schema).is_valid(tomllib.loads(example().replace(right, wrong)))


def test_the_schema_has_every_kind_and_the_options(schema: dict[str, Any]) -> None:
    assert {*map(str, FORMS)} <= schema["properties"].keys()
    assert {"from", "to", "jobs", "entity", "on-finish"} <= schema["$defs"]["options"]["properties"].keys()
