"""Rules of a job file: what each table says, what is refused and where, and the form of paths."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinstore.errors import ConfigurationError, ValidationError
from twinstore.scheduler.catalog import SCHEDULER
from twinstore_backfill.cli.job_file import read_job_file
from twinstore_backfill.rules.checking import check_rules
from twinstore_backfill.rules.model import (
    ANY,
    NO_RULES,
    AcceptRule,
    DateRule,
    DefaultRule,
    DeriveRule,
    DropRule,
    IdRule,
    JobRules,
    KeyRule,
    LookupRule,
    MapRule,
    NumberRule,
    RenameRule,
    ReplaceRule,
    TrimRule,
    path_text,
)
from twinstore_backfill.rules.paths import PathError, parse_path
from twinstore_backfill.rules.reading import with_options

if TYPE_CHECKING:
    from pathlib import Path

EVERY_KIND = r'''
title = """
[[map]]
"""
[[replace]]
path = 'runs.error."a.b".*'
what = "nul"
reason = "r"
[[trim]]
path = "*.timezone"
empty = true
reason = "r"
[[map]] # a comment with one quote: don't
path = "runs.state"
values = { done = "completed", "1" = "queued" }
absent = ["n/a", ""]
reason = "r"
[[date]]
path = "runs.createdAt"
formats = ["%d.%m.%Y %H:%M", "epoch-milliseconds"]
zone = "Europe/Zurich"
reason = "r"
[[number]]
path = "runs.stats.queued"
from = "text"
factor = 0.001
reason = "r"
[[id]]
path = "runs.scheduleId"
to = "text"
reason = "r"
[[lookup]]
path = "schedules.owner"
in = "schedules"
by = "name"
take = "_id"
reason = "r"
[[derive]]
path = "runs.finishedAt"
max = "events.at"
reason = "r"
[[rename]]
path = "runs.old.state"
to = "state"
keep = true
reason = "r"
[[drop]]
path = "*.__v"
reason = " left by a mapper "
[[key]]
entity = "audit"
from = "id"
reason = "r"
[[default]]
path = "schedules.createdAt"
value = 2019-01-01T01:00:00+01:00
reason = "r"
[[accept]]
kind = "text_timestamp"
path = "runs.createdAt"
approved-by = "ops"
reason = "r"
[[accept]]
kind = "unique:name"
entity = "schedules"
most = 18
approved-by = "ops"
reason = "r"
'''


def rules_of(directory: Path, text: str) -> JobRules:
    """Return the rules of a job file."""
    file = directory / "job.toml"
    file.write_text(text, encoding="utf-8")
    return read_job_file(file).rules


def refused(directory: Path, text: str) -> str:
    """Return why a job file or its rules are refused, behind the name of the file."""
    with pytest.raises((ConfigurationError, ValidationError)) as caught:
        check_rules(rules_of(directory, text), SCHEDULER.entities)
    return caught.value.message.removeprefix(f"The job file {directory / 'job.toml'}").lstrip(",: ")


def test_every_kind_is_read_with_its_place_in_the_file(tmp_path: Path) -> None:
    rules = rules_of(tmp_path, EVERY_KIND)
    lines = [number for number, line in enumerate(EVERY_KIND.splitlines(), 1) if line.startswith("[[")]
    assert [(rule.number, rule.line) for rule in rules] == list(enumerate(lines[1:], 1))
    every = {"reason": "r"}
    expected = (
        ReplaceRule(entity="runs", path=("error", "a.b", ANY), what="nul", **place(rules, 0), **every),
        TrimRule(entity=ANY, path=("timezone",), empty=True, **place(rules, 1), **every),
        MapRule(
            entity="runs",
            path=("state",),
            values={"done": "completed", "1": "queued"},
            absent=("n/a", ""),
            **place(rules, 2),
            **every,
        ),
        DateRule(
            entity="runs",
            path=("createdAt",),
            formats=("%d.%m.%Y %H:%M", "epoch-milliseconds"),
            zone="Europe/Zurich",
            **place(rules, 3),
            **every,
        ),
        NumberRule(
            entity="runs",
            path=("stats", "queued"),
            source="text",
            factor=Decimal("0.001"),
            **place(rules, 4),
            **every,
        ),
        IdRule(entity="runs", path=("scheduleId",), to="text", **place(rules, 5), **every),
        LookupRule(
            entity="schedules",
            path=("owner",),
            within="schedules",
            by=("name",),
            take=("_id",),
            **place(rules, 6),
            **every,
        ),
        DeriveRule(
            entity="runs", path=("finishedAt",), how="max", of=("events", "at"), **place(rules, 7), **every
        ),
        RenameRule(
            entity="runs", path=("old", "state"), to=("state",), keep=True, **place(rules, 8), **every
        ),
        DropRule(entity=ANY, path=("__v",), **place(rules, 9), reason="left by a mapper"),
        KeyRule(entity="audit", path=("id",), **place(rules, 10), **every),
        DefaultRule(
            entity="schedules",
            path=("createdAt",),
            value="2019-01-01T00:00:00+00:00",
            **place(rules, 11),
            **every,
        ),
        AcceptRule(
            entity="runs",
            path=("createdAt",),
            what="text_timestamp",
            approved_by="ops",
            **place(rules, 12),
            **every,
        ),
        AcceptRule(
            entity="schedules",
            path=(),
            what="unique:name",
            most=18,
            approved_by="ops",
            **place(rules, 13),
            **every,
        ),
    )
    assert rules.rules == expected


def place(rules: JobRules, at: int) -> dict[str, int]:
    """Return where a rule was read, which the test above compares by itself."""
    return {"number": rules.rules[at].number, "line": rules.rules[at].line}
