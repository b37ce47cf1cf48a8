from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from twinstore.access.query import holds, label_of_value
from twinstore.catalog.conditions import After, AtLeast, AtMost, Before, Equals, IsNull, IsPresent, OneOf
from twinstore.catalog.entity import Entity, Marker, Module, Parent
from twinstore.catalog.indexes import Index
from twinstore.catalog.keys import text, uuid
from twinstore.catalog.tenancy import Tenancy
from twinstore.scheduler.catalog import RUN_SUMMARIES
from twinstore.testing.entities import DEVICES, ENTRIES, LINES, NOTES, PARTS, PLACES, Colour, Level
from twinstore.testing.instants import at

if TYPE_CHECKING:
    from twinstore.catalog.conditions import Condition


def described(entity: Entity[Any], **changes: Any) -> Entity[Any]:  # noqa: ANN401  # any field of a description
    return replace(entity, **changes)


@pytest.mark.parametrize(
    ("entity", "changes", "problem"),
    [
        (NOTES, {"key_parts": (text("nothing"),)}, "has no field nothing"),
        (DEVICES, {"beside": ("id", "colour")}, "has no field colour"),
        (PLACES, {"narrow": ("volume",)}, "has no field volume"),
        (
            NOTES,
            {"narrow": ("seats", "tags")},
            "holds tags in 32 bits, which is neither an integer nor a list",
        ),
        (NOTES, {"storage": ()}, "has no field archivedAt"),
        (PLACES, {"tenancy": Tenancy.required("owner")}, "has no field owner"),
        (LINES, {"parent": Parent(entity=NOTES, field="note")}, "has no field note"),
        (PLACES, {"tenancy": Tenancy.through_parent()}, "but names none"),
        (PARTS, {"parent": Parent(entity=RUN_SUMMARIES, field="name")}, "whose key has several parts"),
        (
            ENTRIES,
            {"key_parts": (text("message"),)},
            "belongs to the tenant of a parent, but deviceId is not part of its key",
        ),
        (
            DEVICES,
            {
                "tenancy": Tenancy.through_parent(),
                "parent": Parent(entity=NOTES, field="holder"),
                "key_parts": (uuid("id"), text("holder")),
            },
            "belongs to the tenant of a parent, but may lack holder",
        ),
        (LINES, {"parent": Parent(entity=PLACES, field="noteId")}, "whose key has several parts"),
        (LINES, {"parent": None}, "is an ordered log, but names no parent that is versioned"),
        (
            LINES,
            {"parent": Parent(entity=described(NOTES, versioned=False), field="noteId")},
            "is an ordered log, but names no parent that is versioned",
        ),
        (
            DEVICES,
            {"indexes": (Index(fields=("serial",), name="serial", unique=True),)},
            "may lack serial of serial; narrow it with IsPresent",
        ),
        (
            DEVICES,
            {"indexes": (Index(fields=("importedBy",), name="by", unique=True),)},
            "may lack importedBy of by",
        ),
        (
            DEVICES,
            {"indexes": (Index(fields=("serial",), name="s", unique=True, where=(IsNull("serial"),)),)},
            "may lack serial of s",
        ),
        (NOTES, {"collection": "a$b"}, "which MongoDB refuses"),
        (NOTES, {"collection": "system.views"}, "which MongoDB refuses"),
        (NOTES, {"indexes": (Index(fields=("title",), name="by title"),)}, "has the index 'by title'; use"),
        (
            NOTES,
            {"indexes": (Index(fields=("title",), name="t"), Index(fields=("body",), name="t"))},
            "has 2 indexes with the name t for",
        ),
    ],
)
def test_a_description_that_contradicts_itself_is_refused(
    entity: Entity[Any], changes: dict[str, object], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem) as refusal:
        described(entity, **changes)
    assert str(refusal.value).startswith(f"{entity.name} ")


@pytest.mark.parametrize("name", ["", "Notes", "my notes", "1st", 'a"b', "a" * 41, "ä"])
def test_a_name_that_a_server_would_change_or_cut_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be a name; use at most 40 lower-case letters"):
        described(NOTES, name=name)
    with pytest.raises(ValueError, match=f"module {re.escape(name)} cannot be a name"):
        Module(name=name)


def test_a_module_has_entities_that_can_be_told_apart_parents_first() -> None:
    twin = described(PLACES, collection=NOTES.collection)
    for entities, problem in (
        ((NOTES, NOTES), "has 2 entities with the name notes"),
        ((NOTES, twin), "has 2 entities with the collection notes"),
        ((DEVICES, described(NOTES, module="other")), "notes, which says that it belongs to other"),
        ((PARTS, DEVICES), "names parts before its parent devices; put the parent first"),
        ((PARTS,), "names parts before its parent devices"),
    ):
        with pytest.raises(ValueError, match=problem):
            Module(name=NOTES.module, entities=entities)


@pytest.mark.parametrize(
    "index",
    [
        Index(fields=("serial",), name="s", unique=True, where=(Equals("serial", "x"),)),
        Index(fields=("rank",), name="r", unique=True),
        Index(fields=("spotCount",), name="c", unique=True),
        Index(fields=("serial",), name="s"),
    ],
    ids=lambda index: f"{index.fields} {index.where}",
)
def test_a_unique_value_of_fields_that_are_always_there_is_accepted(index: Index) -> None:
    assert described(DEVICES, indexes=(index,)).indexes == (index,)


def test_a_required_marker_may_be_a_unique_value() -> None:
    marked = described(
        PLACES,
        storage=(Marker(name="code", required=True),),
        indexes=(Index(fields=("code",), name="code", unique=True),),
    )
    assert [index.name for index in marked.uniques] == ["code"]


@pytest.mark.parametrize(
    ("condition", "true", "false"),
    [
        (Equals("f", "a"), ["a"], ["b", None, 1]),
        (OneOf("f", ("high", "low")), [Level.HIGH, "low"], ["middle", None]),
        (IsNull("f"), [None], ["", 0, False]),
        (IsPresent("f"), ["", 0, False], [None]),
        (After("f", 1), [2], [1, 0, None, "2", True, at(0)]),
        (Before("f", at(1)), [at(0)], [at(1), at(2), None, "2025-01-01T00:00:00Z", 0]),
        (AtMost("f", at(1)), [at(1), at(0)], [at(2), None]),
        (AtLeast("f", 0), [0, 1], [-1, None, "0", False]),
    ],
)
def test_a_condition_is_true_of_some_values(
    condition: Condition, true: list[object], false: list[object]
) -> None:
    assert [holds(condition, value) for value in true] == [True] * len(true)
    assert [holds(condition, value) for value in false] == [False] * len(false)


@pytest.mark.parametrize(
    ("value", "label"),
    [
        (None, ""),
        ("", ""),
        ("text", "text"),
        (True, "true"),
        (False, "false"),
        (-3, "-3"),
        (Level.HIGH, "high"),
        (Colour.DARK_GREEN, "dark-green"),
        (at(0.001), "2025-10-26T14:05:00.001+00:00"),
    ],
)
def test_values_are_counted_under_their_wire_form(value: object, label: str) -> None:
    assert label_of_value(value) == label
