"""Descriptions of entities, also of several models in one table and of keys in another form."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final

import pydantic
import pytest
from pydantic import Field

from twinstore.access.query import holds, label_of_value
from twinstore.catalog.conditions import (
    After,
    AtLeast,
    AtMost,
    Before,
    Equals,
    IsNull,
    IsPresent,
    NotAfter,
    OneOf,
)
from twinstore.catalog.entity import (
    Derived,
    Entity,
    Layout,
    Marker,
    Module,
    Parent,
    Retention,
    RetentionUnit,
)
from twinstore.catalog.indexes import Index, StoreKind
from twinstore.catalog.keys import digits, text, uuid
from twinstore.catalog.tenancy import Tenancy
from twinstore.fast.program import NoProgram, program_of
from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import Count, ExtraProperties, Id
from twinstore.models.shapes import Kind, VariantModel, shapes_of, variants_of
from twinstore.scheduler.catalog import GRAPH_JOB_EVENTS, GRAPH_JOBS, IMPACT_SNAPSHOTS, RUN_SUMMARIES
from twinstore.scheduler.graph_jobs import GraphBuildJob, GraphJob, GraphOverlayJob
from twinstore.testing.entities import (
    COUNTERS,
    DEVICES,
    ENTRIES,
    LINES,
    NOTES,
    PARCELS,
    PARTS,
    PLACES,
    TICKETS,
    Colour,
    Counter,
    Level,
    Ticket,
)
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


def test_a_module_has_distinguishable_entities_parents_first() -> None:
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


INNER: Final = {
    "a nested value": "spot.label",
    "the instant of a nested value": "spot.seenAt",
    "a list of texts": "tags",
    "a list of numbers": "seats",
    "what is in a list": "spots.label",
}
ON_DOCUMENTS: Final = frozenset({StoreKind.DOCUMENTS})


@pytest.mark.parametrize("name", INNER.values(), ids=INNER)
def test_an_index_may_be_about_what_is_inside_of_a_field(name: str) -> None:
    index = Index(fields=(name,), name="inner")
    entity = described(NOTES, indexes=(NOTES.indexes[0], index))
    assert [item.name for item in entity.indexes if entity.is_inner(item)] == ["inner"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"fields": ("spot.town",)}, "has no field spot.town"),
        ({"fields": ("extra.town",)}, "has no field extra.town"),
        ({"fields": ("title.first",)}, "has no field title.first"),
        ({"fields": ("archivedAt.year",)}, "has no field archivedAt.year"),
        ({"fields": ("spot.details",)}, "on spot.details, which is a map with free keys; name a value in it"),
        ({"fields": ("spot.label",), "unique": True}, "inside of a field; such an index can only find rows"),
        ({"fields": ("tags",), "unique": True}, "inside of a field; such an index can only find rows"),
        ({"fields": ("spot.label",), "nulls_first": True}, "such an index can only find rows"),
        ({"fields": ("tags", "title")}, "on a list and other fields, which tables cannot have"),
        ({"fields": ("tags", "spots.label"), "stores": ON_DOCUMENTS}, "on two lists"),
        ({"fields": ("-tags",)}, "on a list in descending order"),
        ({"fields": ("dueAt",), "expires": True}, "must be on its retention's field alone"),
        ({"fields": ("closedAt", "id"), "expires": True}, "must be on its retention's field alone"),
        ({"fields": ("id",), "where": (Equals("spot.label", "x"),)}, "has no field spot.label"),
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)
def test_an_index_that_a_store_cannot_have_is_refused(changes: dict[str, Any], problem: str) -> None:
    index = Index(**{"name": "odd", **changes})
    with pytest.raises(ValueError, match=re.escape(problem)):
        described(NOTES, indexes=(*NOTES.indexes, index))


@pytest.mark.parametrize(
    ("unit", "value", "age"),
    [
        (RetentionUnit.DAYS, 2, timedelta(days=2)),
        (RetentionUnit.SECONDS, 90, timedelta(seconds=90)),
        (RetentionUnit.INSTANT, True, timedelta(0)),
        *((unit, 0, None) for unit in RetentionUnit),
    ],
)
def test_an_option_says_at_which_age_rows_are_due(
    unit: RetentionUnit, value: int, age: timedelta | None
) -> None:
    assert unit.age(value) == age


def test_rows_expire_by_a_timestamp() -> None:
    with pytest.raises(ValueError, match="expires by title, which is not a timestamp"):
        described(NOTES, retention=Retention(field="title", option="note_retention_days"))


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
        (NotAfter("f", at(1)), [at(1), at(0), None, 3], [at(2)]),
        (NotAfter("f", 1), [1, 0, None, at(2)], [2]),
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


TABLES: Final = frozenset({StoreKind.TABLES})
NUMBER: Final = Derived(name="n", kind=Kind.INTEGER, value=lambda *_: 1, stores=TABLES)


class Shape(VariantModel, discriminator="id"):
    """A base with two models."""

    id: Id


class Circle(Shape, discriminator_prefix="circle_"):
    """One of them."""

    radius: Count


class Box(Shape, discriminator_prefix="box_"):
    """The other one."""

    side: Count
    radius: Id = "none"


def said(value: object) -> str:
    """Name a case by a text that is the same in every process; the repr of a description shows addresses."""
    return value if isinstance(value, str) else type(value).__name__


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"layout": Layout.COLUMNS}, "holds several models"),
        ({"beside": (*GRAPH_JOBS.beside, "sbomId")}, "holds GraphOverlayJob, which has no field sbomId"),
        ({"key_parts": (text("uuid"),)}, "has the key part uuid of type text"),
        ({"key_parts": (digits("id"),), "own_id": None}, "has the key part id of type hex"),
        ({"own_id": "uuid"}, "has the own id uuid, which is for a key of one other field"),
        ({"own_id": "sbomId"}, "has the own id sbomId, which must be a text that every model has"),
        ({"own_id": "nothing"}, "has no field nothing"),
        ({"columns": {"uuid": "id", "status": "id"}}, "names 2 columns id"),
        ({"columns": {"nothing": "id"}}, "has no field nothing"),
        (
            {"storage": (Marker(name="updatedAt", kind=Kind.INSTANT, required=True, assigned=True),)},
            "has the assigned marker updatedAt, which must be a required integer",
        ),
        (
            {"derived": (*GRAPH_JOBS.derived, Derived(name="flag", kind=Kind.FLAG, value=lambda *_: True))},
            "derives flag, which is flag",
        ),
    ],
    ids=said,
)
def test_a_wrong_description_of_graph_jobs_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=f"^graph_jobs {problem}"):
        replace(GRAPH_JOBS, **changes)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"storage": (Marker(name="seq", kind=Kind.INTEGER, required=True),)}, "has the key eventId in its"),
        (
            {"indexes": tuple(index for index in GRAPH_JOB_EVENTS.indexes if index.name != "event")},
            "has the key eventId in its payload alone, but no unique index of it on tables",
        ),
        (
            {"indexes": tuple(index for index in GRAPH_JOB_EVENTS.indexes if index.name != "seq")},
            "has the assigned marker seq, but no unique index of it alone on every store",
        ),
        (
            {
                "storage": (
                    *GRAPH_JOB_EVENTS.storage,
                    Marker(name="other", kind=Kind.INTEGER, required=True, assigned=True),
                )
            },
            "has 2 markers that are assigned",
        ),
        ({"parent": Parent(entity=GRAPH_JOBS, field="kind")}, "refers to graph_jobs by kind"),
        (
            {
                "derived": (*GRAPH_JOB_EVENTS.derived, NUMBER),
                "indexes": (*GRAPH_JOB_EVENTS.indexes, Index(fields=("n",), name="n")),
            },
            "has the index n on stores that lack n",
        ),
    ],
    ids=said,
)
def test_a_wrong_description_of_their_events_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=f"^graph_job_events {problem}"):
        replace(GRAPH_JOB_EVENTS, **changes)


def test_a_base_is_read_as_the_model_that_the_text_asks_for() -> None:
    assert variants_of(Shape) == (Circle, Box)
    assert variants_of(Circle) == ()
    assert Shape.model_validate({"id": "box_1", "side": 2}) == Box(id="box_1", side=2)
    assert variants_of(GraphJob) == (GraphBuildJob, GraphOverlayJob)
    with pytest.raises(ValueError, match="id should begin with circle_ or box_"):
        Shape.model_validate({"id": "line_1"})
    with pytest.raises(TypeError, match="stands for several models; make a Circle or Box"):
        Shape(id="box_1")


def test_the_fields_of_a_base_are_those_of_all_its_models() -> None:
    shapes = {shape.wire: (shape.value.kind, shape.optional) for shape in shapes_of(Shape)}
    # A number in one and a text in the other is any JSON to a store.
    assert shapes == {"id": (Kind.TEXT, False), "radius": (Kind.MAP, False), "side": (Kind.INTEGER, True)}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ({}, "has no discriminator_prefix, the text with which its id begins"),
        ({"discriminator_prefix": "box_big_"}, "cannot be distinguished"),
        ({"discriminator_prefix": "b"}, "cannot be distinguished"),
        ({"discriminator": "size"}, "discriminator='size', which is not one of its fields: id"),
    ],
    ids=said,
)
def test_models_that_cannot_be_distinguished_are_refused(words: dict[str, str], problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        type("Other", (Shape,), {"__module__": __name__, "__annotations__": {}}, **words)
    assert variants_of(Shape) == (Circle, Box)


@pytest.mark.parametrize(
    ("entity", "changes", "problem"),
    [
        (GRAPH_JOBS, {"generated_id": True}, "has the own id id and a generated one"),
        (
            GRAPH_JOBS,
            {"generated_id": True, "own_id": None},
            "has a generated id and the key uuid, which is no",
        ),
        (
            IMPACT_SNAPSHOTS,
            {"generated_id": True},
            "has a generated id and a key that follows from the content",
        ),
        (PARCELS, {"own_id": "label"}, "has the own id label, which must be a text that every model has"),
    ],
    ids=said,
)
def test_a_second_generated_id_is_refused(entity: Entity, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{entity.name} {problem}"):
        replace(entity, **changes)


def test_a_generated_id_is_no_field_and_leaves_the_key_where_it_is() -> None:
    assert (PARCELS.document_id, PARCELS.single_key) == (None, "parcelId")
    assert replace(PARCELS, generated_id=False).document_id == "parcelId"


@pytest.mark.parametrize(
    ("entity", "changes", "problem"),
    [
        (NOTES, {"key_as_id": True}, "has the key id as its id, which a key of one text always is"),
        (TICKETS, {"generated_id": True}, "has the key number as its id and another id"),
        (TICKETS, {"own_id": "batch"}, "has the own id batch, which is for a key of one other field"),
        (
            DEVICES,
            {"key_as_id": True, "key_parts": (uuid("id"), text("importedBy"))},
            "has the key importedBy as its id, which is not a field of its model",
        ),
    ],
    ids=said,
)
def test_a_key_that_cannot_be_the_id_is_refused(
    entity: Entity[Any], changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=f"^{entity.name} {problem}"):
        replace(entity, **changes)


def named(alias: str) -> type[Ticket]:
    """Return the model of a ticket with a further field that is stored under some name."""
    found: type[Ticket] = pydantic.create_model(
        "Named", __base__=Ticket, more=(Annotated[str, Field(alias=alias)], "")
    )
    return found


@pytest.mark.parametrize(
    ("alias", "changes", "setting"),
    [
        ("_id", {}, "it is the key or joins it, so give the field another alias"),
        ("_id.number", {}, "it is a part of the key"),
        ("_version", {"versioned": True}, "set versioned to False"),
        ("_by", {"storage": (Marker(name="by"),)}, "make the marker by plain, or rename it"),
        (
            "_digest",
            {"derived": (Derived(name="digest", kind=Kind.TEXT, value=lambda *_: ""),)},
            "keep the derived field digest to tables, or rename it",
        ),
    ],
    ids=said,
)
def test_a_name_that_documents_need_themselves_is_refused_with_what_frees_it(
    alias: str, changes: dict[str, Any], setting: str
) -> None:
    needed = f"^tickets has the field {re.escape(alias)}, but documents need that name themselves; {setting}"
    with pytest.raises(ValueError, match=needed):
        replace(TICKETS, model=named(alias), **changes)
    if alias[:3] != "_id":
        replace(TICKETS, model=named(alias))


@pytest.mark.parametrize("alias", ["", "a\0b"])
def test_a_name_under_which_no_store_holds_a_value_is_refused_at_any_depth(alias: str) -> None:
    innermost: Any = named(alias)
    inner: Any = pydantic.create_model("Inner", __base__=CanonicalModel, more=innermost)
    outer = pydantic.create_model("Outer", __base__=Ticket, inner=inner)
    for model in (innermost, outer):
        with pytest.raises(ValueError, match=r"^tickets has a field with the name .*; use a text"):
            replace(TICKETS, model=model)


@pytest.mark.parametrize("alias", ["$price", "hall.place", "extra"])
def test_a_field_without_a_path_is_in_no_key_index_or_list(alias: str) -> None:
    places: tuple[dict[str, Any], ...] = (
        {"key_parts": (text(alias),), "key_as_id": False},
        {"indexes": (Index(fields=("batch", alias), name="by"),)},
        {"indexes": (Index(fields=("batch",), name="by", where=(IsNull(alias),)),)},
        {"layout": Layout.PAYLOAD, "beside": (*TICKETS.key, alias)},
        {"tenancy": Tenancy.required(alias)},
    )
    for changes in places:
        with pytest.raises(ValueError, match=r"^tickets uses .* but documents have no path to a name"):
            replace(TICKETS, **changes)
    assert alias not in TICKETS.queried
    assert replace(TICKETS, columns={alias: "other"}, narrow=("$price",)).unpathed == TICKETS.unpathed


EXTRA: Final[Any] = (ExtraProperties, Field(default_factory=dict))


@pytest.mark.parametrize(
    ("base", "fields", "problem"),
    [
        (Ticket, {"more": EXTRA}, "keeps unknown properties in extra and more; one field can"),
        (Counter, {"extra": (ExtraProperties, ...)}, "has the field extra without a default"),
        (Counter, {"items": (tuple[Ticket, ...], ())}, "has a model in items that keeps unknown properties"),
    ],
)
def test_one_field_of_the_rows_keeps_unknown_properties(
    base: type[CanonicalModel], fields: dict[str, Any], problem: str
) -> None:
    model: Any = pydantic.create_model("Other", __base__=base, **fields)
    entity: Entity[Any] = TICKETS if base is Ticket else COUNTERS
    with pytest.raises(ValueError, match=f"^{entity.name} {problem}"):
        replace(entity, model=model)


def test_no_part_of_a_field_keeps_unknown_properties() -> None:
    optional = pydantic.create_model("Optional", __base__=Counter, extra=(ExtraProperties | None, None))
    with pytest.raises(TypeError, match="the type of a field itself"):
        shapes_of(optional)


class Bag(VariantModel, discriminator="id"):
    """A base with one model, which keeps what it does not name."""

    id: Id


class FullBag(Bag, discriminator_prefix="full"):
    """That model."""

    extra: ExtraProperties = Field(default_factory=dict)


def test_none_of_several_models_keeps_unknown_properties() -> None:
    with pytest.raises(ValueError, match="bags holds several models, of which none can keep unknown"):
        Entity(
            name="bags",
            singular="bag",
            module="kit",
            model=Bag,
            key_parts=(text("id"),),
            tenancy=Tenancy.none(),
            group="kit",
            layout=Layout.PAYLOAD,
            beside=("id",),
        )


def test_native_code_leaves_other_names_than_those_of_a_convention_to_the_exact_way() -> None:
    assert not any(entity.has_free_names for entity in (NOTES, DEVICES, GRAPH_JOBS, RUN_SUMMARIES))
    found = program_of(replace(TICKETS, key_as_id=False))
    assert isinstance(found, NoProgram)
    assert found.reason == "a field has a name that native code does not know"
