"""Descriptions of several models in one table and of keys in another form, and why some are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from twinstore.catalog.entity import Derived, Entity, Layout, Marker, Parent
from twinstore.catalog.indexes import Index, StoreKind
from twinstore.catalog.keys import digits, text
from twinstore.models.fields import Count, Id
from twinstore.models.shapes import Kind, VariantModel, shapes_of, variants_of
from twinstore.scheduler.catalog import GRAPH_JOB_EVENTS, GRAPH_JOBS, IMPACT_SNAPSHOTS
from twinstore.scheduler.graph_jobs import GraphBuildJob, GraphJob, GraphOverlayJob
from twinstore.testing.entities import PARCELS

TABLES: Final = frozenset({StoreKind.TABLES})
NUMBER: Final = Derived(name="n", kind=Kind.INTEGER, value=lambda *_: 1, stores=TABLES)


class Shape(VariantModel, told_by="id"):
    """A base with two models."""

    id: Id


class Circle(Shape, begins="circle_"):
    """One of them."""

    radius: Count


class Box(Shape, begins="box_"):
    """The other one."""

    side: Count
    radius: Id = "none"


def said(value: object) -> str:
    """Name a case by what is told, which is the same in every process; a description shows addresses."""
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
        ({}, "does not say how its id begins"),
        ({"begins": "box_big_"}, "cannot be told apart"),
        ({"begins": "b"}, "cannot be told apart"),
        ({"told_by": "size"}, "is told by 'size', which is no field of it; it has id"),
    ],
    ids=said,
)
def test_models_that_cannot_be_told_apart_are_refused(words: dict[str, str], problem: str) -> None:
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
def test_a_generated_id_beside_another_one_is_refused(
    entity: Entity, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=f"^{entity.name} {problem}"):
        replace(entity, **changes)


def test_a_generated_id_is_no_field_and_leaves_the_key_where_it_is() -> None:
    assert (PARCELS.document_id, PARCELS.single_key) == (None, "parcelId")
    assert replace(PARCELS, generated_id=False).document_id == "parcelId"
