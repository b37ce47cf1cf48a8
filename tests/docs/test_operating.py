"""The page on operating: its queries run, its figures exist, and its alarms are those of the rules file."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, cast

import psycopg
import pytest
import yaml
from pymongo import MongoClient

from docs.parts.errors import core_errors
from tests.docs.pages import DOCS, ROOT, blocks, prose
from twinstore import MigrationMissingError, open_storage
from twinstore.observing.counters import METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.support.databases import MongoDatabase, PostgresDatabase

PAGE: Final = DOCS / "operating.md"
RULES: Final = ROOT / "samples" / "operating" / "alerts.yml"
LABELS: Final[Mapping[str, frozenset[str]]] = {
    metric.name: frozenset({*metric.labels, *(("le",) if metric.buckets else ())}) for metric in METRICS
}
OUTCOMES: Final = frozenset({"ok", "error", *(kind.code for kind in core_errors())})
OUTCOME: Final = re.compile(r'\boutcome(?:=~|!~|!=|=)"([^"]*)"')
GAUGES: Final = frozenset(re.findall(r'"(scheduler_\w+)":', prose(PAGE)))
METRIC: Final = re.compile(r"\b(?:twinstore|scheduler)_\w+")
PART_OF_HISTOGRAM: Final = re.compile(r"(?<=_seconds)_(?:bucket|count|sum)$")
GROUPED: Final = re.compile(r"\bby \(([^)]*)\)")
CHOSEN: Final = re.compile(r"(\w+)(?:=~|!~|!=|=)\"")
SHOWN: Final = re.compile(r"\$labels\.(\w+)")
NOT_YET: Final = "099_of_a_later_release.sql"
# What a newer version would have noted.
LATER: Final = """
INSERT INTO scheduler.schema_migrations
SELECT (jsonb_populate_record(m, jsonb_build_object('migration_name', %s::text))).*
  FROM scheduler.schema_migrations AS m LIMIT 1
"""


def rules() -> Iterator[dict[str, Any]]:
    document = yaml.safe_load(RULES.read_text("utf-8"))
    for group in document["groups"]:
        assert set(group) == {"name", "rules"}
        yield from cast("list[dict[str, Any]]", group["rules"])


ALARMS: Final = {rule["alert"]: rule for rule in rules()}


def metrics(expression: str) -> set[str]:
    """Return the metrics of a rule, a part of a histogram as the histogram."""
    return {PART_OF_HISTOGRAM.sub("", name) for name in METRIC.findall(expression)}


@pytest.mark.parametrize("name", ALARMS)
def test_a_rule_asks_for_metrics_and_labels_that_there_are(name: str) -> None:
    rule = ALARMS[name]
    assert set(rule) - {"for"} == {"alert", "expr", "labels", "annotations"}
    assert rule["labels"]["severity"] in {"page", "ticket"}
    assert re.fullmatch(r"\d+[smhd]", rule.get("for", "1m"))
    found = metrics(rule["expr"])
    assert found, "a rule without a metric never rings"
    assert found <= LABELS.keys() | GAUGES
    grouped = {label.strip() for labels in GROUPED.findall(rule["expr"]) for label in labels.split(",")}
    known = {label for metric in found for label in LABELS.get(metric, ())}
    assert grouped | set(CHOSEN.findall(rule["expr"])) <= known
    assert {code for codes in OUTCOME.findall(rule["expr"]) for code in codes.split("|")} <= OUTCOMES
    assert set(SHOWN.findall(rule["annotations"]["summary"])) <= grouped, "a label that the sum has dropped"


def test_every_metric_has_an_alarm_and_every_alarm_says_what_to_do() -> None:
    assert {name for rule in ALARMS.values() for name in metrics(rule["expr"])} == LABELS.keys() | GAUGES
    page = prose(PAGE)
    listed = re.findall(r"^- \*\*`(\w+)`\*\* \((page|ticket); [^)]+\): \S", page, re.MULTILINE)
    assert dict(listed) == {name: rule["labels"]["severity"] for name, rule in ALARMS.items()}
    assert {name for name in LABELS if f"| `{name}` |" not in page} == set()


def test_the_queries_of_postgresql_run_as_a_role_that_monitors(postgres_database: PostgresDatabase) -> None:
    statements = [
        statement
        for block in blocks(PAGE)
        if block.language == "sql"
        for statement in block.body.strip().removesuffix(";").split(";\n")
    ]
    assert len(statements) >= 8
    with psycopg.connect(postgres_database.superuser_url, autocommit=True) as connection:
        connection.execute("SET ROLE pg_monitor")
        for statement in statements:
            connection.execute(statement.encode()).fetchall()


def test_the_fields_of_mongodb_are_there(mongo_database: MongoDatabase) -> None:
    commands = [json.loads(block.body) for block in blocks(PAGE) if block.language == "json"]
    assert [next(iter(command)) for command in commands] == ["serverStatus", "replSetGetStatus"]
    with MongoClient[dict[str, Any]](mongo_database.url) as client:
        status, members = (client.admin.command(command) for command in commands)
    assert all("optimeDate" in member for member in members["members"])
    section = prose(PAGE).partition("| Field of `serverStatus` |")[2].partition("```")[0]
    fields = [
        name for row in re.findall(r"^\| (`.+?`) \|", section, re.MULTILINE) for name in row.split(", ")
    ]
    assert len(fields) >= 10
    for field in fields:
        place: Any = status
        for name in field.strip("`").split("."):
            assert name in place, field
            place = place[name]


def test_processes_of_the_old_version_go_on_while_check_ready_refuses_a_newer_schema(
    postgres_database: PostgresDatabase,
) -> None:
    with open_storage(postgres_database.config) as storage:
        storage.scheduler.check_ready()
        with psycopg.connect(postgres_database.owner_url, autocommit=True) as owner:
            owner.execute(LATER, [NOT_YET])
        assert storage.scheduler.runs.get("acme", "run-1") is None
        with pytest.raises(MigrationMissingError, match=NOT_YET):
            storage.scheduler.check_ready()


def test_a_dump_by_a_role_that_policies_bind_is_refused(postgres_database: PostgresDatabase) -> None:
    for url in (postgres_database.owner_url, postgres_database.app_url):
        with psycopg.connect(url, autocommit=True) as connection:
            # As pg_dump does by default.
            connection.execute("SET row_security = off")
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
                connection.execute("SELECT FROM scheduler.runs").fetchall()
