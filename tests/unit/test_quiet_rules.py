"""Rules that native code need not know: they change no document that it reads."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

import bson
import pytest
from bson.errors import InvalidDocument
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.test_rules_agree import RULES, TOPS
from twinstore.bulk.changes import ChangeRefusedError
from twinstore.catalog.row import Row
from twinstore.fast.library import library
from twinstore.scheduler.catalog import AUDIT, RUNS
from twinstore.testing.scheduler.builders import make_audit_record, make_run
from twinstore_backfill.copy.rules import copier_changes
from twinstore_backfill.copy.rules.quiet import is_quiet
from twinstore_backfill.rules.model import (
    DateRule,
    DefaultRule,
    DropRule,
    JobRules,
    MapRule,
    NumberRule,
    RenameRule,
    ReplaceRule,
    Rule,
    TrimRule,
)
from twinstore_mongo.bulk.records import native_documents
from twinstore_mongo.mapping.codec import FIRST_VERSION, codec_of
from twinstore_mongo.mapping.stored_values import MONGO_VALUES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore.catalog.entity import Entity

BASES: Final[Mapping[Entity, Mapping[str, object]]] = {
    entity: codec_of(entity).encode(Row(model), FIRST_VERSION)
    for entity, model in ((RUNS, make_run("t", "r")), (AUDIT, make_audit_record("t", "a")))
}
DONE: Final = {"done": "completed"}


def rule(kind: type[Rule], path: str, **more: Any) -> Rule:  # noqa: ANN401  # the parts of any rule
    return kind(number=1, line=1, entity="*", path=tuple(path.split(".")), **more)


@pytest.mark.parametrize(
    ("given_rule", "quiet"),
    [
        (rule(MapRule, "state", values=DONE), True),
        (rule(MapRule, "state", values={**DONE, "error": "completed"}), False),
        (rule(MapRule, "state", values=DONE, absent=("queued",)), False),
        (rule(MapRule, "scheduleId", values=DONE), False),
        (rule(DateRule, "createdAt", formats=("epoch-seconds",)), True),
        (rule(DateRule, "error", formats=("epoch-seconds",)), False),
        (rule(RenameRule, "schedule", to=("scheduleId",)), True),
        (rule(RenameRule, "error", to=("scheduleId",), keep=True), False),
        (rule(TrimRule, "error"), True),
        (rule(TrimRule, "error", empty=True), False),
        (rule(TrimRule, "_id"), False),
        (rule(DefaultRule, "schemaVersion", value="scheduler.run@1"), False),
        (rule(DefaultRule, "trigger", value="cron"), True),
        (rule(DropRule, "stats.old"), True),
        (rule(NumberRule, "stats.candidates", source="text"), True),
        (rule(ReplaceRule, "error", old="a"), False),
    ],
)
def test_a_rule_is_quiet_if_it_changes_only_what_native_code_declines(
    given_rule: Rule, *, quiet: bool
) -> None:
    assert is_quiet(RUNS, given_rule) is quiet


@pytest.mark.skipif(library() is None, reason="there is no fast path")
@settings(max_examples=600)
@given(
    one=RULES,
    entity=st.sampled_from((RUNS, AUDIT)),
    name=st.none() | st.sampled_from(tuple(TOPS)),
    value=st.one_of(*TOPS.values()),
)
def test_no_quiet_rule_changes_a_document_that_native_code_reads(
    one: Rule, entity: Entity, name: str | None, value: object
) -> None:
    if not is_quiet(entity, one):
        return
    document = {**BASES[entity], **({} if name is None else {name: deepcopy(value)})}
    try:
        raw = bson.encode(document)
    except (InvalidDocument, UnicodeEncodeError):
        return
    native = native_documents(entity, frozenset())
    read = None if native is None else native.read(raw)
    if read is None or read.declined:
        return
    change = copier_changes(JobRules((one,)), [entity]).documents[entity.name]
    try:
        assert not change(bson.decode(raw), MONGO_VALUES).rules
    except ChangeRefusedError as error:
        raise AssertionError(str(error)) from error
