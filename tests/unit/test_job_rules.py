"""Rules of a job file: what each table says, what is refused and where, and the form of paths."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinstore.errors import ConfigurationError, ValidationError
from twinstore.scheduler.catalog import SCHEDULER, SCHEDULES
from twinstore.testing.typed_entities import WARES
from twinstore_backfill.rules.checking import check_rules
from twinstore_backfill.rules.job_file import read_job_file
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
    from collections.abc import Callable
    from pathlib import Path

    from twinstore_backfill.rules.model import Rule

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
path = "triggers.scheduleId"
in = "schedules"
by = "name"
take = "id"
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
reason = " r "
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


def made(cls: Callable[..., Rule], path: str, **own: object) -> Rule:
    """Return a rule without its place in the file."""
    entity, *names = path.split("/")
    return cls(number=0, line=0, entity=entity, path=tuple(names), reason="r", **own)


def test_every_kind_is_read_with_its_place_in_the_file(tmp_path: Path) -> None:
    rules = rules_of(tmp_path, EVERY_KIND)
    lines = [number for number, line in enumerate(EVERY_KIND.splitlines(), 1) if line.startswith("[[")]
    # The first of them is in a text.
    assert [(rule.number, rule.line) for rule in rules] == list(enumerate(lines[1:], 1))
    assert [replace(rule, number=0, line=0) for rule in rules] == [
        made(ReplaceRule, "runs/error/a.b/*", what="nul"),
        made(TrimRule, "*/timezone", empty=True),
        made(MapRule, "runs/state", values={"done": "completed", "1": "queued"}, absent=("n/a", "")),
        made(
            DateRule,
            "runs/createdAt",
            formats=("%d.%m.%Y %H:%M", "epoch-milliseconds"),
            zone="Europe/Zurich",
        ),
        made(NumberRule, "runs/stats/queued", source="text", factor=Decimal("0.001")),
        made(IdRule, "runs/scheduleId", to="text"),
        made(LookupRule, "triggers/scheduleId", other="schedules", by="name", take="id"),
        made(DeriveRule, "runs/finishedAt", how="max", of=("events", "at")),
        made(RenameRule, "runs/old/state", to=("state",), keep=True),
        made(DropRule, "*/__v"),
        made(KeyRule, "audit/id"),
        made(DefaultRule, "schedules/createdAt", value="2019-01-01T00:00:00+00:00"),
        made(AcceptRule, "runs/createdAt", what="text_timestamp", approved_by="ops"),
        made(AcceptRule, "schedules", what="unique:name", most=18, approved_by="ops"),
    ]


def rule(kind: str, body: str, *, reason: bool = True) -> str:
    """Return a table of a job file."""
    return f"[[{kind}]]\n{body}\n" + ('reason = "r"\n' if reason else "")


RUNS_STATE = 'path = "runs.state"\n'
DATE = 'path = "runs.createdAt"\nformats = ["{}"]'
ACCEPT = 'approved-by = "ops"\nkind = '


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        # What the file says.
        (rule("mapp", RUNS_STATE), "line 1: there is no rule [[mapp]]; did you mean map?"),
        ("map = [{ path = 'runs.state' }]", "write each rule as a table that begins with [[map]]."),
        ("[map]\npath = 'runs.state'", "write each rule as a table that begins with [[map]]."),
        ("reverse = 1", "reverse is true or false, not 1."),
        # What no job can undo.
        *(
            (f"reverse = true\n{text}", f"line 2: {problem}")
            for text, problem in (
                (
                    rule("drop", 'path = "runs.x"'),
                    "[[drop]] runs.x: reverse = true cannot undo it: only",
                ),
                (
                    rule("key", 'entity = "audit"\nfrom = "no"'),
                    "[[key]] audit.no: reverse = true cannot",
                ),
                (
                    rule("rename", 'path = "runs.x"\nto = "error"\nkeep = true'),
                    "[[rename]] runs.x: reverse = true cannot undo it: keep leaves two values.",
                ),
                (
                    rule("rename", 'path = "runs.x.y"\nto = "error"'),
                    "[[rename]] runs.x.y: reverse = true cannot undo it: x would be left, empty",
                ),
                (
                    rule("id", 'path = "runs._id"\nto = "uuid"'),
                    "[[id]] runs._id: reverse = true cannot undo it: rows that came later have keys",
                ),
                (
                    rule("map", f'{RUNS_STATE}values = {{ a = "error", b = "error" }}'),
                    "[[map]] runs.state: reverse = true cannot undo it: two words become one.",
                ),
                (
                    rule("map", f'{RUNS_STATE}values = {{ error = "queued", queued = "error" }}'),
                    "[[map]] runs.state: reverse = true cannot undo it: a word is both old and new.",
                ),
                (
                    rule("map", f'{RUNS_STATE}values = {{ a = "error" }}\nabsent = ["n/a"]'),
                    "[[map]] runs.state: reverse = true cannot undo it: absent removes words.",
                ),
                (
                    rule("map", f'{RUNS_STATE}values = {{ 1 = "error" }}'),
                    "[[map]] runs.state: reverse = true cannot undo it: true, false and digits may",
                ),
                (
                    rule("map", 'path = "runs.createdAt"\nvalues = { never = "1970-01-01T00:00:00Z" }'),
                    "[[map]] runs.createdAt: reverse = true cannot undo it: the field holds no words.",
                ),
                (
                    rule("map", 'path = "execution_logs.data.a"\nvalues = { half = 0.5 }'),
                    "[[map]] execution_logs.data.a: reverse = true cannot undo it: a fraction is no word.",
                ),
                (
                    rule("rename", 'path = "locks.x"\nto = "holderId"'),
                    "[[rename]] locks.x: reverse = true cannot undo it: a copy writes its rows",
                ),
            )
        ),
        (
            rule("map", f"{RUNS_STATE}vaules = {{}}"),
            "line 1: [[map]] has the unknown key vaules; did you mean values?",
        ),
        (rule("drop", "", reason=True), "line 1: [[drop]] needs path: an entity and a path"),
        (rule("drop", 'path = "runs.x"', reason=False), "line 1: [[drop]] needs reason: a text"),
        ('[[drop]]\npath = "runs.x"\nreason = " "', "line 1: [[drop]] expects a text that is neither empty"),
        (
            '[[drop]]\npath = "runs.x"\nreason = "…"',
            "line 1: [[drop]] expects a text that is neither empty nor …",
        ),
        (rule("default", f'{RUNS_STATE}value = "…"'), "line 1: [[default]] needs a value in place of …"),
        (rule("drop", 'path = "runs"'), "line 1: [[drop]] names no property at path"),
        (rule("drop", 'path = "runs."'), "line 1: [[drop]] path: 'runs.' is not a path"),
        (rule("drop", "path = 'runs.\"*\"'"), 'line 1: [[drop]] path: "*": a rule cannot name'),
        (rule("drop", "path = 'runs.\"\\q\"'"), 'line 1: [[drop]] path: "\\q" is not quoted as TOML'),
        (rule("trim", f'{RUNS_STATE}empty = "yes"'), "line 1: [[trim]] expects true or false for empty."),
        (rule("map", RUNS_STATE), "line 1: [[map]] needs values or absent."),
        (
            rule("map", f'{RUNS_STATE}values = {{ a = "b" }}\nabsent = ["a"]'),
            "line 1: [[map]] has 'a' in values",
        ),
        (rule("map", f"{RUNS_STATE}values = {{ a = [1] }}"), "line 1: [[map]] expects a table of words"),
        (rule("replace", RUNS_STATE), "line 1: [[replace]] needs either text, which is not empty, or what."),
        (
            rule("replace", f'{RUNS_STATE}what = "null"'),
            "line 1: [[replace]] has an unknown value of what; did you mean nul?",
        ),
        (
            rule("number", 'path = "runs.stats.queued"\nfrom = "text"\nfactor = 0.02'),
            "line 1: [[number]] expects an integer other than 0 or a power of ten for factor.",
        ),
        (rule("derive", 'path = "runs.finishedAt"'), "line 1: [[derive]] needs one of max, min, first,"),
        (rule("default", 'path = "runs.state"\nvalue = 2020-01-01T00:00:00'), "line 1: [[default]] expects"),
        (
            rule("accept", f'{ACCEPT}"orphans"\nentity = "runs"\nmost = 1'),
            "line 1: [[accept]] has the unknown kind 'orphans'; did you mean orphan?",
        ),
        (rule("accept", f'{ACCEPT}"model"\nentity = "runs"'), "line 1: [[accept]] of model needs most"),
        (rule("accept", f'{ACCEPT}"model:"\nentity = "runs"'), "line 1: [[accept]] has the unknown kind"),
        (
            rule("accept", f'{ACCEPT}"orphan"\npath = "runs.state"\nmost = 1'),
            "line 1: [[accept]] of orphan needs entity instead of path.",
        ),
        (rule("accept", f'{ACCEPT}"whitespace"'), "line 1: [[accept]] of whitespace needs path."),
        (
            rule("accept", f'{ACCEPT}"whitespace"\npath = "runs.error"\nmost = 3'),
            "line 1: [[accept]] of whitespace takes no most.",
        ),
        (
            rule("accept", 'kind = "whitespace"\npath = "runs.error"'),
            "line 1: [[accept]] needs approved-by",
        ),
        # What the models say.
        (
            rule("trim", 'path = "run.error"'),
            "line 1: [[trim]] run.error: there is no entity run; did you mean runs?",
        ),
        (
            rule("trim", 'path = "runs.eror"'),
            "line 1: [[trim]] runs.eror: Run has no field 'eror'; did you mean error?",
        ),
        (rule("trim", 'path = "runs.error.x"'), "line 1: [[trim]] runs.error.x: 'error' holds a value"),
        (
            rule("default", 'path = "runs.stats.queud"\nvalue = 0'),
            "line 1: [[default]] runs.stats.queud: RunStats has no field 'queud'; did you mean queued?",
        ),
        (
            rule("map", f'{RUNS_STATE}values = {{ done = "complete" }}'),
            "line 1: [[map]] runs.state: the field cannot hold 'complete'; did you mean completed?",
        ),
        (
            rule("rename", 'path = "runs.was"\nto = "state"')
            + rule("map", 'path = "runs.was"\nvalues = { x = "queud" }'),
            "line 5: [[map]] runs.was: the field cannot hold 'queud'; did you mean queued?",
        ),
        (
            rule("default", f'{RUNS_STATE}value = "open"'),
            "line 1: [[default]] runs.state: the field cannot hold 'open'; known: planning, queued",
        ),
        (
            rule("default", 'path = "schedules.subscribers"\nvalue = [1]'),
            "line 1: [[default]] schedules.subscribers: the field is a text and cannot hold 1.",
        ),
        (
            rule("default", 'path = "runs.createdAt"\nvalue = "2020"'),
            "line 1: [[default]] runs.createdAt: the field (instant) cannot hold '2020'",
        ),
        (
            rule("rename", 'path = "runs.old"\nto = "sate"'),
            "line 1: [[rename]] runs.old: Run has no field 'sate'; did you mean state?",
        ),
        (
            rule("date", 'path = "runs.error"\nformats = ["epoch-seconds"]'),
            "line 1: [[date]] runs.error: the field is a text and not instant.",
        ),
        (
            rule("number", 'path = "execution_logs.data.x"\nfrom = "text"'),
            "line 1: [[number]] execution_logs.data.x: the model has no type of number there.",
        ),
        (rule("date", DATE.format("%d.%m.%Y")), "line 1: [[date]] runs.createdAt: zone is needed"),
        (
            rule("date", DATE.format("%d.%m.%Y") + '\nzone = "Europe/Zurch"'),
            "line 1: [[date]] runs.createdAt: zone: 'Europe/Zurch' is not a known time zone; did you mean",
        ),
        (
            rule("date", DATE.format("%d.%m.%y")),
            "line 1: [[date]] runs.createdAt: %y in '%d.%m.%y' has a year",
        ),
        (rule("date", DATE.format("%Y-%m-%d %Q")), "line 1: [[date]] runs.createdAt: %Q in"),
        (rule("date", DATE.format("%Y-%m %z")), "line 1: [[date]] runs.createdAt: '%Y-%m %z' gives no whole"),
        (rule("date", DATE.format("%Y-%j %I%z")), "line 1: [[date]] runs.createdAt: '%Y-%j %I%z' needs both"),
        (rule("date", DATE.format("%Y-%m-%d (%b)%z")), "line 1: [[date]] runs.createdAt: %b and %m in"),
        (rule("date", DATE.format("%Y%Y-%j%z")), "line 1: [[date]] runs.createdAt: %Y is repeated"),
        (
            rule("date", DATE.format("epoch-millis")),
            "line 1: [[date]] runs.createdAt: there is no format epoch-millis; did you mean epoch-",
        ),
        (
            rule("drop", 'path = "runs.error"'),
            "line 1: [[drop]] runs.error: 'error' is a property of the model",
        ),
        (
            rule("default", 'path = "audit.metadata.*"\nvalue = "x"'),
            "line 1: [[default]] audit.metadata.*: name",
        ),
        (
            rule("rename", 'path = "runs.old.*"\nto = "error"'),
            "line 1: [[rename]] runs.old.*: * would move several values to one place",
        ),
        # References.
        *(
            (
                rule("lookup", f'path = "{path}"\nin = "{other}"\nby = "{by}"{more}'),
                f"line 1: [[lookup]] {path}: {said}",
            )
            for path, other, by, more, said in (
                ("runs.x", "schedule", "name", "", "there is no entity schedule; did you mean schedules?"),
                ("runs.scheduleId", "*", "name", "", "there is no entity *; known: schedules"),
                ("runs.scheduleId", "workers", "status", "", "workers is not copied"),
                ("runs.scheduleId", "schedules", "nam", "", "by: Schedule has no field 'nam'; did you"),
                ("runs.scheduleId", "schedules", "$where", "", "by names a field at the top"),
                ("runs.scheduleId", "schedules", "name.x", "", "by names a field at the top"),
                ("runs.scheduleId", "schedules", "id", "", "documents of schedules have id as _id"),
                ("runs.scheduleId", "run_summaries", "lastRun", "", "take is needed: tenantId or scheduleId"),
                ("runs.scheduleId", "schedules", "name", '\ntake = "ID"', "ID is no part of the key of"),
                ("runs.finishedAt", "schedules", "name", "", "the field cannot hold the id of schedules"),
                ("runs._id", "schedules", "name", "", "'_id' is part of the key of runs"),
                ("triggers.tenantId", "schedules", "name", "", "it would decide the tenant of triggers"),
            )
        ),
        (
            rule("lookup", 'path = "runs.firma"\nin = "schedules"\nby = "name"')
            + rule("rename", 'path = "runs.firma"\nto = "tenantId"'),
            "line 1: [[lookup]] runs.firma: it would decide the tenant of runs",
        ),
        (
            rule("rename", 'path = "runs.firma"\nto = "error"')
            + rule("rename", 'path = "runs.error"\nto = "tenantId"')
            + rule("lookup", 'path = "runs.scheduleId"\nin = "schedules"\nby = "name"'),
            "line 9: [[lookup]] runs.scheduleId: rules make the tenant of runs in several steps",
        ),
        # Keys.
        (rule("trim", 'path = "runs._id"'), "line 1: [[trim]] runs._id: '_id' is part of the key of runs"),
        (
            rule("trim", 'path = "run_summaries.tenantId"'),
            "line 1: [[trim]] run_summaries.tenantId: 'tenantId' is part of the key of run_summaries",
        ),
        (
            rule("key", 'entity = "audit"\nfrom = "number"') + rule("trim", 'path = "audit.number"'),
            "line 5: [[trim]] audit.number: 'number' is part of the key of audit",
        ),
        (
            rule("rename", 'path = "audit.no"\nto = "id"'),
            "line 1: [[rename]] audit.no: 'id' is part of the key",
        ),
        (rule("key", 'entity = "*"\nfrom = "id"'), "line 1: [[key]] *.id: give one entity"),
        (
            rule("key", 'entity = "locks"\nfrom = "x"'),
            "line 1: [[key]] locks.x: the key of locks is not in _id",
        ),
        (
            rule("accept", f'{ACCEPT}"whitespace"\npath = "schedules.name"'),
            "line 1: [[accept]] whitespace of schedules.name: name is a unique value of schedules",
        ),
        (
            rule("accept", f'{ACCEPT}"case"\npath = "runs.tenantId"'),
            "line 1: [[accept]] case of runs.tenantId: tenantId is a tenant of runs",
        ),
        (
            rule("accept", f'{ACCEPT}"unique:name"\nentity = "schedules"\nmost = 18'),
            "line 1: [[accept]] unique:name of schedules: there is no unique index 'name'; known:",
        ),
        (
            rule("accept", f'{ACCEPT}"rule:createdAd"\nentity = "runs"\nmost = 1')
            + rule("date", DATE.format("epoch-seconds")),
            "line 1: [[accept]] rule:createdAd of runs: no rule of the job has the path createdAd;",
        ),
        # Pairs.
        (
            rule("trim", 'path = "runs.error"') + rule("trim", 'path = "*.error"'),
            "line 4: [[trim]] *.error: it overlaps the [[trim]] of line 1.",
        ),
        (
            rule("rename", 'path = "runs.a"\nto = "error"') + rule("rename", 'path = "runs.b"\nto = "error"'),
            "line 5: [[rename]] runs.b: it overlaps the [[rename]] of line 1.",
        ),
        (
            rule("key", 'entity = "audit"\nfrom = "a"') + rule("key", 'entity = "audit"\nfrom = "b"'),
            "line 5: [[key]] audit.b: it overlaps the [[key]] of line 1.",
        ),
        (
            rule("drop", 'path = "runs.old"') + rule("trim", 'path = "runs.old.state"'),
            "line 4: [[trim]] runs.old.state: Run has no field 'old'",
        ),
        (
            rule("accept", f'{ACCEPT}"orphan"\nentity = "runs"\nmost = 1') * 2,
            "line 7: [[accept]] orphan of runs: it overlaps the [[accept]] of line 1.",
        ),
        (
            rule("trim", 'path = "audit.metadata.*"') + rule("trim", 'path = "audit.metadata.a"'),
            "line 4: [[trim]] audit.metadata.a: it overlaps the [[trim]] of line 1.",
        ),
        (rule("drop", 'path = "runs.*"'), "line 1: [[drop]] runs.*: name the property to drop"),
        (rule("drop", 'path = "runs.stats.*"'), "line 1: [[drop]] runs.stats.*: name the property to drop"),
        (
            rule("key", 'entity = "runs"\nfrom = "error"'),
            "line 1: [[key]] runs.error: 'error' is another field of the model",
        ),
        (
            rule("default", 'path = "runs.error"\nvalue = "a\\u0000"'),
            "line 1: [[default]] gives a text with U+0000",
        ),
        (
            rule("map", 'path = "audit.metadata.a"\nvalues = { a = "\\u0000" }'),
            "line 1: [[map]] gives a text with U+0000",
        ),
        *(
            (
                rule("number", f'path = "runs.stats.queued"\nfrom = "text"\nfactor = {factor}'),
                "line 1: [[number]] expects an integer other than 0 or a power of ten for factor.",
            )
            for factor in ("inf", '"1E+999999999999"', '"1E-401"')
        ),
        (rule("function", 'path = "runs.error"'), "line 1: there is no rule [[function]]"),
    ],
)
def test_what_means_nothing_is_refused_with_its_line(text: str, problem: str, tmp_path: Path) -> None:
    assert refused(tmp_path, text).startswith(problem), refused(tmp_path, text)


@pytest.mark.parametrize(
    ("path", "text"), [("maker", "s1"), ("design", "0" * 32), ("price", "1_0"), ("image", "AA==")]
)
def test_no_rule_gives_a_typed_field_a_text_of_another_form(path: str, text: str, tmp_path: Path) -> None:
    place = f'path = "wares.{path}"\n'
    for table in (
        rule("default", f'{place}value = "{text}"'),
        rule("map", f'{place}values = {{ a = "{text}" }}'),
        rule("lookup", f'{place}in = "schedules"\nby = "name"'),
    ):
        with pytest.raises(ValidationError, match="cannot hold"):
            check_rules(rules_of(tmp_path, table), (WARES, SCHEDULES))


@pytest.mark.parametrize(
    "text",
    [
        # In the order of the file.
        rule("replace", 'path = "runs.error"\ntext = " "') * 2,
        # What a list is read for need not be known to the model, and is dropped afterwards.
        rule("derive", 'path = "runs.finishedAt"\nmax = "events.at"')
        + rule("date", 'path = "runs.events.at"\nformats = ["epoch-seconds"]'),
        rule("rename", 'path = "runs.was"\nto = "state"') + rule("trim", 'path = "runs.was"'),
        # Words that another rule reads need not be those of the field.
        rule("map", 'path = "runs.createdAt"\nvalues = { never = "1.1.2020" }')
        + rule("date", DATE.format("%d.%m.%Y") + '\nzone = "UTC"'),
        rule("id", 'path = "runs._id"\nto = "text"'),
        # Words may be those by which rows are found, and rows may be found by what is not copied.
        rule("map", 'path = "runs.scheduleId"\nvalues = { a = "b" }')
        + rule("lookup", 'path = "runs.scheduleId"\nin = "schedules"\nby = "legacyName"')
        + rule("drop", 'path = "schedules.legacyName"'),
        rule("lookup", 'path = "audit.runId"\nin = "runs"\nby = "_id"'),
        rule("trim", 'path = "audit.metadata.*"'),
        rule("rename", 'path = "execution_logs.data.*.a"\nto = "data.*.b"'),
        rule("trim", 'path = "impact_snapshots._tenantId"'),
        rule("accept", f'{ACCEPT}"orphan"\nentity = "*"\nmost = 1')
        + rule("accept", f'{ACCEPT}"key"\nentity = "*"\nmost = 1')
        + rule("accept", f'{ACCEPT}"no_trigger"'),
        # What is taken out of an object is changed and moved before the object goes.
        rule("drop", 'path = "runs.old"')
        + rule("trim", 'path = "runs.old.state"')
        + rule("rename", 'path = "runs.old.state"\nto = "state"'),
        rule("accept", f'{ACCEPT}"beside"\npath = "policy_jobs.priorityRank"'),
        "\ufeff" + rule("map", 'path = "runs.error"\nvalues = { "\\u0000" = "a" }'),
        # A thousand rules take no longer than each of them.
        "".join(rule("drop", f'path = "runs.x{number}"') for number in range(1500)),
        "reverse = true\n"
        + rule("map", f'{RUNS_STATE}values = {{ done = "completed" }}')
        + rule("map", 'path = "schedules.enabled"\nvalues = { yes = true }')
        + rule("rename", 'path = "runs.stats.pending"\nto = "stats.queued"')
        + rule("rename", 'path = "runs.problem"\nto = "error"')
        + rule("id", 'path = "runs.scheduleId"\nto = "uuid"')
        + rule("accept", f'{ACCEPT}"orphan"\nentity = "runs"\nmost = 1'),
    ],
)
def test_what_means_something_is_taken(text: str, tmp_path: Path) -> None:
    rules = rules_of(tmp_path, text)
    check_rules(rules, SCHEDULER.entities)
    assert len(rules.rules) == text.count("[[")


def test_the_former_name_of_a_drop_is_read_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rules = rules_of(tmp_path, rule("ignore-unknown", 'path = "runs.legacy"'))
    assert rules.rules == (DropRule(number=1, line=1, entity="runs", path=("legacy",), reason="r"),)
    assert "[[ignore-unknown]] is called [[drop]] now" in caplog.text


def test_the_option_adds_a_drop_without_a_reason(tmp_path: Path) -> None:
    rules = rules_of(tmp_path, rule("drop", 'path = "runs.legacy"'))
    both = with_options(rules, ["runs.legacy", "*.__v", "runs.'a.b'", "*.__v"])
    assert [(item.number, item.line, item.text, item.reason) for item in both] == [
        (1, 1, "runs.legacy", "r"),
        (2, 0, "*.__v", ""),
        (3, 0, 'runs."a.b"', ""),
    ]
    with pytest.raises(ValidationError, match=r"^--ignore-unknown runs\.error: 'error' is a property"):
        check_rules(with_options(NO_RULES, ["runs.error"]), SCHEDULER.entities)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@given(st.lists(NAMES.filter(lambda name: name != ANY) | st.just(ANY), min_size=1, max_size=4))
def test_a_path_is_read_as_it_is_written(names: list[str]) -> None:
    assert parse_path(path_text(names)) == tuple(names)


@given(st.text("""a.*"' \\u0 """, max_size=12))
def test_a_text_is_a_path_or_refused(text: str) -> None:
    try:
        path = parse_path(text)
    except PathError:
        return
    assert parse_path(path_text(path)) == path
