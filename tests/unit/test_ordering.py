from __future__ import annotations

from typing import Annotated, Any, cast

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinstore.models.canonical import CanonicalModel
from twinstore.models.collections import Limit, Ordered, Ranked, Unique
from twinstore.models.enums import NumberedEnum


class Size(NumberedEnum):
    LARGE = "large"
    MEDIUM = "medium"
    SMALL = "small"


class Entry(CanonicalModel):
    key: str
    size: Size = Size.SMALL
    place: int = 0
    note: str | None = None


SMALL_FIRST = (Size.SMALL, Size.MEDIUM, Size.LARGE)
ORDERED = Ordered(by=(Ranked(field="size", members=SMALL_FIRST), "key"))
REFUSING = Ordered(
    by=("place", "key"),
    descending=True,
    unique=Unique(field="key", code="twice", message="entries should name each key once"),
    limit=Limit(count=3, code="many", message="there should be at most 3 entries"),
)
entries = st.lists(
    st.builds(Entry, key=st.sampled_from("abC"), size=st.sampled_from(Size), place=st.integers(0, 2)),
    max_size=5,
)


def kept(ordered: Ordered, items: list[Entry]) -> tuple[Entry, ...]:
    annotated = Annotated[tuple[Entry, ...], ordered]
    adapter: pydantic.TypeAdapter[tuple[Entry, ...]] = pydantic.TypeAdapter(annotated)
    return adapter.validate_python(items)


@given(items=entries)
def test_the_first_field_decides_and_equal_entries_stay_as_they_came(items: list[Entry]) -> None:
    expected = sorted(items, key=lambda item: (SMALL_FIRST.index(item.size), item.key))
    assert [id(item) for item in kept(ORDERED, items)] == [id(item) for item in expected]


def answer(ordered: Ordered, items: list[Entry]) -> list[Entry] | str:
    try:
        return list(kept(ordered, items))
    except pydantic.ValidationError as error:
        return "; ".join(f"{problem['type']}: {problem['msg']}" for problem in error.errors())


@given(items=entries)
def test_a_list_is_refused_for_its_length_then_for_what_occurs_twice_and_else_sorted(
    items: list[Entry],
) -> None:
    expected: list[Entry] | str = sorted(items, key=lambda item: (item.place, item.key), reverse=True)
    if len(items) > 3:
        expected = "many: there should be at most 3 entries"
    elif len({item.key for item in items}) < len(items):
        expected = "twice: entries should name each key once"
    assert answer(REFUSING, items) == expected


@pytest.mark.parametrize(
    ("ordered", "problem"),
    [
        (Ordered(by=("kye",)), "'kye' of Entry, but Entry has no field 'kye'; it has key, size, place, note"),
        (
            Ordered(by=("key",), unique=Unique(field="keys", code="twice", message="twice")),
            "names 'keys' of Entry, but Entry has no field 'keys'",
        ),
        (Ordered(by=("note",)), "names 'note' of Entry, which may be absent"),
        (Ordered(by=(Ranked(field="size", members=SMALL_FIRST[:2]),)), "each once"),
        (Ordered(by=(Ranked(field="size", members=(*SMALL_FIRST, Size.SMALL)),)), "each once"),
        (Ordered(by=(Ranked(field="key", members=SMALL_FIRST),)), "not the members of that enumeration"),
        (Ordered(by=(Ranked(field="size", members=()),)), "not the members of that enumeration"),
    ],
)
def test_an_order_that_does_not_fit_the_entries_is_refused_with_its_class(
    ordered: Ordered, problem: str
) -> None:
    with pytest.raises(TypeError, match=problem):
        kept(ordered, [])


def test_only_a_tuple_of_a_model_can_be_ordered() -> None:
    for annotation in (
        Annotated[tuple[str, ...], ORDERED],
        Annotated[list[Entry], ORDERED],
        Annotated[Entry, ORDERED],
    ):
        with pytest.raises(TypeError, match="Ordered is for tuples of a model"):
            pydantic.create_model("Holder", entries=(cast("Any", annotation), ...))


def test_the_order_of_a_field_can_be_read_from_its_model() -> None:
    class Holder(CanonicalModel):
        entries: Annotated[tuple[Entry, ...], ORDERED] = ()

    assert Holder.model_fields["entries"].metadata == [ORDERED]
