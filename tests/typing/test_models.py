"""What type checkers say of the models: each mistake below is found by mypy and by pyright, and at run time.

The comments are the expectation. Both checkers refuse a comment that silences nothing (`warn_unused_ignores`
of mypy's strict mode, `reportUnnecessaryTypeIgnoreComment`), so a mistake that is no longer found breaks
`make check`.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final, assert_type

import pytest
from pydantic import ValidationError

from tests.library.books import Book
from twinstore.canonical import CanonicalModel
from twinstore.fields import Id
from twinstore.generate_changes import models_of
from twinstore.scheduler import GraphBuildJob, PolicyRunJob, Run, RunState
from twinstore.testing.scheduler.builders import make_run

if TYPE_CHECKING:
    from twinstore.scheduler.changes.runs import RunChanges

PACKAGES: Final = ("twinstore.scheduler", "twinstore.taskrunner", "twinstore.tracking")
RUN: Final = make_run("acme", "run-1")


class Note(CanonicalModel):
    """A model of somebody else, who has written no changes for it."""

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
        RUN.evolve(stat=RunState.QUEUED)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_evolve_takes_values_that_fit() -> None:
    with pytest.raises(ValidationError, match="state"):
        RUN.evolve(state="banana")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValidationError, match="tenant_id"):
        RUN.evolve(tenant_id=7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_evolve_answers_the_same_model() -> None:
    queued = RUN.evolve(state=RunState.QUEUED)
    assert_type(queued, Run)
    assert queued.state is RunState.QUEUED


def test_changes_may_be_gathered_first() -> None:
    changes: RunChanges = {"state": RunState.QUEUED}
    changes["stat"] = 1  # type: ignore[typeddict-unknown-key]  # pyright: ignore[reportGeneralTypeIssues]
    del changes["stat"]  # type: ignore[typeddict-item]  # pyright: ignore[reportGeneralTypeIssues]
    assert RUN.evolve(**changes).state is RunState.QUEUED


def test_changes_that_come_from_elsewhere_are_taken_as_they_are() -> None:
    # As model_dump(exclude_unset=True) of a request body is typed.
    changes: dict[str, Any] = {"state": "queued"}
    assert RUN.evolve(**changes).state is RunState.QUEUED


def test_a_model_of_somebody_else_works_without_changes_of_its_own() -> None:
    note = Note(id="a").evolve(lines=2)
    assert_type(note, Note)
    assert note.lines == 2
    assert_type(Book(id="b", tenant_id="acme", title="On stores").evolve(title="On shelves"), Book)


def test_models_are_hashable_where_their_values_are() -> None:
    assert len({Note(id="a"), Note(id="a"), Note(id="b")}) == 2


@pytest.mark.parametrize(
    "model", [model for package in PACKAGES for model in models_of(package)], ids=lambda model: model.__name__
)
def test_every_model_of_ours_says_what_evolve_takes(model: type[CanonicalModel]) -> None:
    source = inspect.getsource(model)
    # The order is that of the model of a variant and of its base, of which both say it.
    assert f"def evolve(self, **changes: Unpack[{model.__name__}Changes]) -> Self: ..." in source
    # At run time there is one for all of them.
    assert model.evolve is CanonicalModel.evolve


def test_nothing_of_it_is_imported_at_run_time() -> None:
    program = (
        "import sys, twinstore.scheduler.storage, twinstore.taskrunner.storage, twinstore.tracking.storage;"
        "print([name for name in sys.modules if '.changes' in name])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_fields_of_a_variant_are_its_own() -> None:
    def misread(job: GraphBuildJob, other: PolicyRunJob) -> None:
        """Hold for both type checkers; nothing of it runs."""
        job.evolve(sbom_id="s-1", attempts=2)
        job.evolve(subjects=("a",))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        other.evolve(lease_owner=None)

    assert misread.__doc__ is not None
