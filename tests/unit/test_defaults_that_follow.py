"""Defaults that follow from another field: silent where anything else is wrong."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING

import pydantic
import pytest

from docs.parts.entities import MODULES
from twinstore.errors import ValidationError
from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import Count, Text
from twinstore.models.rules import FieldAtMost, FilledFrom, filled_from
from twinstore.models.validation import revalidated
from twinstore.scheduler.schedules import Schedule
from twinstore.scheduler.triggers import Trigger
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_schedule, make_trigger

if TYPE_CHECKING:
    from collections.abc import Iterator


class Box(CanonicalModel):
    rules = (FieldAtMost("shown", limit="total", code="shown", message="shown should be at most total"),)

    items: tuple[Text, ...] = ()
    total: Count = filled_from("items", len)
    shown: Count = filled_from("total")


def models() -> Iterator[type[CanonicalModel]]:
    """Yield the models of all entities and those inside them."""
    found: dict[type[CanonicalModel], None] = {}
    waiting = [entity.model for module in MODULES for entity in module.catalog.entities]
    while waiting:
        model = waiting.pop()
        if model not in found:
            found[model] = None
            waiting += [
                inner for info in model.model_fields.values() for inner in pydantic_models(info.annotation)
            ]
    yield from found


def pydantic_models(annotation: object) -> list[type[CanonicalModel]]:
    """Return the models that an annotation names."""
    parts = [annotation, *getattr(annotation, "__args__", ())]
    return [part for part in parts if isinstance(part, type) and issubclass(part, CanonicalModel)]


def test_what_is_left_out_follows_in_the_order_of_the_fields() -> None:
    assert Box(items=("a", "b")).__dict__ == {"items": ("a", "b"), "total": 2, "shown": 2}
    assert Box(items=("a",), total=5).shown == 5
    assert Box(items=("a",), total=5, shown=0).shown == 0
    with pytest.raises(pydantic.ValidationError, match="at most total"):
        Box(total=1, shown=2)


@pytest.mark.parametrize("model", list(models()))
def test_no_default_of_ours_is_told_as_an_error_of_its_own(model: type[CanonicalModel]) -> None:
    taking = [name for name, info in model.model_fields.items() if info.default_factory_takes_validated_data]
    assert taking == []


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"when_cron": "nonsense"}, "when_cron"),
        ({"created_at": "yesterday"}, "created_at"),
        ({"name": 5}, "name"),
    ],
)
def test_one_mistake_in_a_schedule_is_one_error(changes: dict[str, object], wrong: str) -> None:
    given = {**make_schedule("t", "s").__dict__, **changes}
    del given["updated_at"], given["updated_by"]
    with pytest.raises(pydantic.ValidationError) as caught:
        Schedule(**given)
    assert [problem["loc"][-1] for problem in caught.value.errors()] == [wrong]


@pytest.mark.parametrize("missing", ["tenant_id", "schedule_id"])
def test_one_mistake_in_a_trigger_is_one_error(missing: str) -> None:
    given = {**make_trigger("t", "s").__dict__}
    del given["id"], given[missing]
    with pytest.raises(pydantic.ValidationError) as caught:
        Trigger(**given)
    assert len(caught.value.errors()) == 1


def test_a_schedule_without_a_change_was_changed_when_it_was_made() -> None:
    given = {**make_schedule("t", "s", created_at=at(5), created_by="eve").__dict__}
    del given["updated_at"], given["updated_by"]
    schedule = Schedule(**given)
    assert (schedule.updated_at, schedule.updated_by) == (at(5), "eve")
    assert not any(isinstance(value, FilledFrom) for value in schedule.__dict__.values())


def test_what_a_caller_changes_later_is_not_what_was_checked() -> None:
    given = make_schedule("t", "s")
    taken = revalidated(given, Schedule, "schedule")
    assert taken == given
    assert taken is not given
    assert taken.limits is not given.limits


def test_a_model_that_holds_itself_is_refused() -> None:
    given = deepcopy(make_schedule("t", "s"))
    object.__setattr__(given, "limits", given)
    with pytest.raises(ValidationError, match="holds itself"):
        revalidated(given, Schedule, "schedule")
