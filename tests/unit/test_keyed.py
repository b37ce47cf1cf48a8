"""Four methods by key serve entities whose rows are models under their keys; other entities are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from tests.support.library.books import Book
from tests.support.library.module import BOOKS
from twinstore.access.keyed import KeyedRepository
from twinstore.scheduler.catalog import AUDIT, SCHEDULES
from twinstore.storage.driver_names import protocol_name
from twinstore.taskrunner.catalog import PACK_ARTIFACTS

if TYPE_CHECKING:
    from twinstore.access.protocol import Access
    from twinstore.catalog.entity import Entity


class Books(KeyedRepository[Book]):
    entity = BOOKS


@pytest.mark.parametrize(
    ("entity", "within", "problem"),
    [
        (AUDIT, (), "append-only"),
        (PACK_ARTIFACTS, (), "without a tenant"),
        (SCHEDULES, (), "not in the model"),
        (BOOKS, ("shelf",), "without shelf"),
    ],
)
def test_an_entity_whose_rows_are_more_is_refused(
    entity: Entity, within: tuple[str, ...], problem: str
) -> None:
    with pytest.raises(ValueError, match=f"{entity.name} .*{problem}.*; write a Repository"):
        type("Refused", (KeyedRepository,), {"entity": entity, "within": within})


@pytest.mark.parametrize(
    ("method", "given", "names"),
    [
        ("put", (), "book; 0"),
        ("get", ("acme",), "tenant_id, book_id; 1"),
        ("list", (), "tenant_id; 0"),
        ("delete", ("acme", "b-1", "more"), "tenant_id, book_id; 3"),
    ],
)
def test_a_call_with_other_arguments_names_those_that_are_needed(
    method: str, given: tuple[str, ...], names: str
) -> None:
    # Refused before any row is reached.
    books = Books(cast("Access", None))
    with pytest.raises(TypeError, match=f"arguments are {names} were given"):
        getattr(books, method)(*given)


def test_a_repository_without_a_protocol_has_its_own_name_in_drivers() -> None:
    assert protocol_name(Books) == "Books"
