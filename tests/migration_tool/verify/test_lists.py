"""The lists of a verification with more tenants than can be asked for one by one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.copies import AS_OF, COPIED, MemoryPair, fill, invoke, memory_pair, write_config
from twinstore.errors import ConfigurationError
from twinstore.testing.scheduler.builders import make_run
from twinstore_backfill.verify import lists, sampling
from twinstore_backfill.verify.checks import read_groups
from twinstore_backfill.verify.lists import ListTask
from twinstore_backfill.verify.sampling import LARGEST, LIST_TENANTS, TenantSelection, tenants_for_lists

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from twinstore_backfill.verify.context import VerifyContext
    from twinstore_backfill.verify.lists import ListResult

TENANTS = [f"tenant-{number:02}" for number in range(12)]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[MemoryPair]:
    with memory_pair(tmp_path) as pair:
        for number, tenant in enumerate(TENANTS):
            for run in range(1 + number // 10):
                pair.source.storage.runs.create(make_run(tenant, f"{tenant}-{run}"))
        pair.copy()
        yield pair


def test_few_tenants_are_all_chosen_and_of_many_the_largest_with_a_seeded_choice() -> None:
    rows = {f"t-{number:04}": 5 for number in range(LIST_TENANTS)}
    assert tenants_for_lists(rows, 1) == TenantSelection(tuple(sorted(rows)))
    large = {f"large-{number:02}": 1000 + number for number in range(LARGEST)}
    many = {f"t-{number:04}": 5 for number in range(3000)} | large
    chosen = tenants_for_lists(many, 1)
    assert len(chosen.tenants) == LIST_TENANTS
    assert set(large) <= set(chosen.tenants)
    assert chosen == tenants_for_lists(dict(reversed(many.items())), 1)
    assert chosen != tenants_for_lists(many, 2)


def test_the_report_says_of_which_tenants_the_lists_were(
    pair: MemoryPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []
    honest = ListTask.run

    def run(self: ListTask, context: VerifyContext) -> ListResult:
        asked.append(self.tenant)
        return honest(self, context)

    monkeypatch.setattr(lists.ListTask, "run", run)
    full = pair.verify()
    assert [*TENANTS, None] == asked
    assert not any("tenants (seed" in check.summary for check in full.checks)
    asked.clear()
    monkeypatch.setattr(sampling, "LIST_TENANTS", 5)
    monkeypatch.setattr(sampling, "LARGEST", 2)
    report = pair.verify(seed=7)
    assert len(asked) == 6
    assert {*TENANTS[-2:], None} <= set(asked)
    summaries = {check.id: check.summary for check in report.checks}
    assert all(summaries[name].endswith(", of 5 of 12 tenants (seed 7)") for name in ("C4", "C5"))
    # Every document was compared all the same.
    assert (report.verdict, report.cutover_ready, report.documents_equal) == ("PASS", True, 14)


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
