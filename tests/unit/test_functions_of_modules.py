"""Functions of a module that change documents: what they get, what they may return, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import count
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from bson import DBRef, Decimal128, ObjectId, Regex
from bson.binary import UUID_SUBTYPE, Binary
from bson.int64 import Int64
from hypothesis import given

from tests.unit.test_rules_agree import DOCUMENTS, form
from twinstore.bulk.changes import ChangeRefusedError, StoredObjectId, StoredReference
from twinstore.errors import ConfigurationError
from twinstore.scheduler.catalog import RUNS
from twinstore_backfill.causes import cause_of
from twinstore_backfill.copy.rules import copier_changes
from twinstore_backfill.rules import functions
from twinstore_backfill.rules.functions import FunctionStep, UnrepeatableError, with_functions
from twinstore_backfill.rules.model import FunctionRule, JobRules, KeyRule
from twinstore_backfill.verify.rules import verifier_changes
from twinstore_mongo.mapping.stored_values import MONGO_VALUES

Document = dict[str, Any]
OID = ObjectId("65a1b2c3d4e5f60718293a4b")
NOON = datetime(2024, 3, 1, 12)  # noqa: DTZ001  # as the client has dates
STORED: Document = {
    "_id": "r1",
    "tenantId": "t",
    "oid": OID,
    "ref": DBRef("schedules", OID),
    "long": Int64(7),
    "at": NOON,
    "price": Decimal128("1.50"),
    "uuid": Binary(bytes(16), UUID_SUBTYPE),
    "pattern": Regex("a"),
    "list": [{"a": 1}, [Int64(2)], None],
    "nan": float("nan"),
}


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FunctionStep]:
    """Return what makes the step of a function for runs."""

    def made(function: object, rules: JobRules = JobRules()) -> FunctionStep:  # noqa: B008  # it has none
        spec = SimpleNamespace(normalise={"runs": function})
        monkeypatch.setattr(functions, "module_spec", lambda _: spec)
        (rule,) = with_functions(rules, "scheduler", [RUNS]).of(RUNS, FunctionRule)
        return FunctionStep(rule)

    return made


def test_a_function_reads_values_as_python_has_them(step: Callable[..., FunctionStep]) -> None:
    seen: list[Document] = []

    def look(document: Document) -> Document:
        seen.append(deepcopy(document))
        return document

    stored = deepcopy(STORED)
    assert not step(look)(stored, MONGO_VALUES)
    assert form(stored) == form(STORED)
    reference = StoredReference("schedules", StoredObjectId(str(OID)))
    assert (seen[0]["oid"], seen[0]["ref"]) == (StoredObjectId(str(OID)), reference)
    assert (seen[0]["at"], seen[0]["price"]) == (NOON.replace(tzinfo=UTC), Decimal("1.50"))
    assert (type(seen[0]["long"]), seen[0]["uuid"]) == (int, UUID(int=0))


@pytest.mark.parametrize(
    ("new", "stored"),
    [
        ({"oid": StoredObjectId(str(OID))}, {}),
        ({"long": 8}, {"long": 8}),
        ({"price": Decimal("1.5")}, {"price": Decimal128("1.5")}),
        (
            {"at": NOON.replace(tzinfo=UTC) + timedelta(microseconds=1999)},
            {"at": NOON.replace(microsecond=1000)},
        ),
        ({"new": UUID(int=1)}, {"new": Binary(UUID(int=1).bytes, UUID_SUBTYPE)}),
        ({"list": [{"a": 1}, [2, 3]]}, {"list": [{"a": 1}, [Int64(2), 3]]}),
        ({"new": {"a": [None, True, 0.5, b"x"]}}, {"new": {"a": [None, True, 0.5, b"x"]}}),
    ],
)
def test_what_a_function_leaves_alone_keeps_its_stored_type(
    step: Callable[..., FunctionStep], new: Document, stored: Document
) -> None:
    document = deepcopy(STORED)
    assert step(lambda given: given | new)(document, MONGO_VALUES) is bool(stored)
    assert form(document) == form(STORED | stored)


def loop(document: Document) -> Document:
    endless: list[object] = []
    endless.append(endless)
    return document | {"a": endless}


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda document: document["secret"], "raises KeyError"),
        (lambda document: document.clear() or int("secret"), "raises ValueError"),
        (lambda document: exit(), "raises SystemExit"),  # noqa: ARG005, PLR1722  # of any code
        (loop, "raises RecursionError"),
        (lambda document: None, "returns NoneType instead of a document"),  # noqa: ARG005
        (lambda document: document | {"_id": "r2"}, "changes _id, by"),
        (lambda document: document | {"id": "r2"}, "changes id, by"),
        (lambda document: {"_id": document["_id"]}, "changes tenantId, by"),
        (lambda document: document | {"code": 2}, "changes code, by"),
        (lambda document: document | {"a": {1, 2}}, "returns a value of the type set"),
        (lambda document: document | {"a": (1, 2)}, "returns a value of the type tuple"),
        (lambda document: document | {"a": {1: 2}}, "returns an object with a name that is not a text"),
        (lambda document: document | {"a": 2**63}, "returns an integer that does not fit"),
        (lambda document: document | {"a": NOON}, "returns an instant without an offset"),
        (lambda document: document | {"a": "\ud800"}, "raises UnicodeEncodeError"),
        (lambda document: document | {"a": Decimal("1" * 40)}, "raises Inexact"),
        (lambda document: document | {"a": StoredObjectId("secret")}, "raises InvalidId"),
    ],
)
def test_a_document_that_a_function_cannot_change_is_refused_without_its_values(
    step: Callable[..., FunctionStep], function: Callable[[Document], Document], reason: str
) -> None:
    document = deepcopy(STORED)
    key = KeyRule(number=1, line=1, entity="runs", path=("code",))
    with pytest.raises(ChangeRefusedError) as caught:
        step(function, JobRules((key,)))(document, MONGO_VALUES)
    assert str(caught.value).startswith(f"the function of the module {reason}")
    assert "secret" not in str(caught.value)
    assert str(cause_of(RUNS, str(caught.value))) == "function"
    assert form(document) == form(STORED)


def test_a_function_that_depends_on_something_else_ends_the_command(
    step: Callable[..., FunctionStep],
) -> None:
    numbers = count()
    with pytest.raises(UnrepeatableError, match="different results"):
        step(lambda document: document | {"a": next(numbers)})({"_id": "r1"}, MONGO_VALUES)


def test_a_function_without_a_file_is_refused(step: Callable[..., FunctionStep]) -> None:
    with pytest.raises(ConfigurationError, match=r"source file of builtins\.dict"):
        step(dict)


def test_a_changed_file_is_another_rule(
    step: Callable[..., FunctionStep], monkeypatch: pytest.MonkeyPatch
) -> None:
    step(loop)
    rules = with_functions(JobRules(), "scheduler", [RUNS])
    monkeypatch.setattr(functions, "source_digest", lambda *_: "1" * 64)
    assert with_functions(JobRules(), "scheduler", [RUNS]).digest(RUNS) != rules.digest(RUNS)
    with pytest.raises(ConfigurationError, match="changed meanwhile"):
        copier_changes(rules, [RUNS])


@given(document=DOCUMENTS)
def test_a_function_that_changes_nothing_changes_no_document(document: Document) -> None:
    with pytest.MonkeyPatch.context() as patch:
        spec = SimpleNamespace(normalise={"runs": deepcopy})
        patch.setattr(functions, "module_spec", lambda _: spec)
        rules = with_functions(JobRules(), "scheduler", [RUNS])
        for changes in (copier_changes(rules, [RUNS]), verifier_changes(rules, [RUNS])):
            change, given = changes.documents["runs"], deepcopy(document)
            assert change.dropped is None
            assert change(given, MONGO_VALUES).rules == []
            assert form(given) == form(document)
