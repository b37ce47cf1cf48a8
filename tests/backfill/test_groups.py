"""The logical groups of a report can be those that an organisation has: group, collection, table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from tests.backfill.toolkit import AS_OF, COPIED, fill, invoke, memory_pair, write_config
from twinstore.errors import ConfigurationError
from twinstore_backfill.verify.checks import read_groups

if TYPE_CHECKING:
    from pathlib import Path

PLAN: Final = {"schedules": "scheduler.schedules", "triggers": "scheduler.triggers"}
REST: Final = {entity.collection: f"scheduler.{entity.name}" for entity in COPIED if entity.name not in PLAN}


def written(directory: Path, groups: object) -> Path:
    return write_config(directory / "groups.json", groups)


def test_the_report_shows_the_groups_of_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with memory_pair(tmp_path) as pair:
        fill(pair.source.storage)
        pair.copy()
        command = ("backfill", "verify", *pair.sides, "--as-of", AS_OF.isoformat())
        groups = ("--groups", written(tmp_path, {"what runs": PLAN, "what ran": REST}))
        answer = invoke(capsys, *command, *groups, "--out", tmp_path, "--format", "json")
    assert (answer.code, answer.json["verdict"]) == (0, "PASS")
    assert [(group["name"], group["result"]) for group in answer.json["groups"]] == [
        ("what runs", "pass"),
        ("what ran", "pass"),
    ]
    assert answer.json["groups"][0]["entities"] == list(PLAN)
    assert {item["group"] for item in answer.json["entities"]} == {"what runs", "what ran"}
    for name in ("md", "html"):
        page = (tmp_path / f"parity-report.{name}").read_text().replace("\\", "")
        assert "what runs" in page
        assert ", ".join(PLAN) in page


def test_every_format_of_a_settings_file_is_read(tmp_path: Path) -> None:
    toml = tmp_path / "groups.toml"
    toml.write_text("\n".join(["[all]", *(f'{key} = "{table}"' for key, table in {**PLAN, **REST}.items())]))
    yaml = tmp_path / "groups.yaml"
    yaml.write_text(json.dumps({"all": {**PLAN, **REST}}))
    wanted = {entity.name: "all" for entity in COPIED}
    assert read_groups(toml, "scheduler") == read_groups(yaml, "scheduler") == wanted


def test_a_table_may_be_named_without_its_schema_and_workers_may_have_a_group(tmp_path: Path) -> None:
    plain = {key: table.partition(".")[2] for key, table in {**PLAN, **REST}.items()}
    found = read_groups(written(tmp_path, {"a": plain, "b": {"workers": "workers"}}), "scheduler")
    assert (found["runs"], found["workers"]) == ("a", "b")


@pytest.mark.parametrize(
    ("groups", "problem"),
    [
        ({"a": PLAN}, "no group names runs, "),
        ({"a": {**PLAN, **REST}, "b": {"runs": "runs"}}, "table 'runs' stands in the groups 'a' and 'b'"),
        ({"a": {"runs": "scheduler.rnus"}}, "unknown table 'scheduler.rnus'. Did you mean runs?"),
        (
            {"a": {"jobs": "scheduler.runs"}},
            "'jobs' for the table 'runs', whose collection is 'runs'",
        ),
        ({"a": "runs"}, "group 'a' should map collections to tables, such as books to library.books."),
        ({"a": {}}, "should map collections to tables"),
        ({"a": {"runs": 1}}, "should map collections to tables"),
        ({" ": PLAN}, "should map collections to tables"),
    ],
)
def test_a_mistake_in_the_file_is_named(groups: object, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_groups(written(tmp_path, groups), "scheduler")
    assert problem in caught.value.message
    assert "groups.json" in caught.value.message


def test_a_file_that_is_not_there_ends_with_2_before_a_store_is_opened(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ("backfill", "verify", "--module", "scheduler", "--from", "memory", "--to", "memory")
    answer = invoke(capsys, *command, "--groups", "nowhere.toml")
    assert answer.code == 2
    assert "nowhere.toml (--groups) does not exist" in answer.err
