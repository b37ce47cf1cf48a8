"""What type checkers say of the models: each mistake below is found by mypy and by pyright, and at run time.

The comments are the expectation. Both checkers refuse a comment that silences nothing (`warn_unused_ignores`
of mypy's strict mode, `reportUnnecessaryTypeIgnoreComment`), so a mistake that is no longer found breaks
`make check`.
"""

from __future__ import annotations

from typing import Any, Final, assert_type

import pytest
from pydantic import ValidationError

from tests.library.books import Book
from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import Id
from twinstore.scheduler import Run, RunState
from twinstore.testing.scheduler.builders import make_run

RUN: Final = make_run("acme", "run-1")


class Note(CanonicalModel):
    """A model of somebody else."""

    id: Id
    lines: int = 0


def test_a_field_is_not_assigned() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        RUN.state = RunState.QUEUED  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    note = Note(id="a")
    with pytest.raises(ValidationError, match="frozen"):
        note.lines = 3  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


def test_evolve_takes_fields_that_there_are() -> None:
    with pytest.raises(ValidationError, match="stat"):
        RUN.evolve(stat=RunState.QUEUED)


def test_evolve_takes_values_that_fit() -> None:
    with pytest.raises(ValidationError, match="state"):
        RUN.evolve(state="banana")
    with pytest.raises(ValidationError, match="tenant_id"):
        RUN.evolve(tenant_id=7)


def test_evolve_answers_the_same_model() -> None:
    queued = RUN.evolve(state=RunState.QUEUED)
    assert_type(queued, Run)
    assert queued.state is RunState.QUEUED


def test_changes_that_come_from_elsewhere_are_taken_as_they_are() -> None:
    # As model_dump(exclude_unset=True) of a request body is typed.
    changes: dict[str, Any] = {"state": "queued"}
    assert RUN.evolve(**changes).state is RunState.QUEUED


def test_a_model_of_somebody_else_evolves_too() -> None:
    note = Note(id="a").evolve(lines=2)
    assert_type(note, Note)
    assert note.lines == 2
    assert_type(Book(id="b", tenant_id="acme", title="On stores").evolve(title="On shelves"), Book)


def test_models_are_hashable_where_their_values_are() -> None:
    assert len({Note(id="a"), Note(id="a"), Note(id="b")}) == 2
