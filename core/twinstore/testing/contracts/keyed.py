"""What every repository must do with a key, whatever the entity: asked of each one that is described."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from twinstore.errors import NotFoundError, ValidationError
from twinstore.testing.base import Contract
from twinstore.testing.contracts.values import assert_stored
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES

if TYPE_CHECKING:
    from twinstore.canonical import CanonicalModel
    from twinstore.scheduler.storage import SchedulerSession
    from twinstore.testing.examples import Example
    from twinstore.testing.signatures import Lookup, Value
    from twinstore.testing.workspace import Workspace

__all__ = ["KeyedRepositoryContract"]

each_entity = pytest.mark.parametrize(
    "example", SCHEDULER_EXAMPLES.examples, ids=lambda example: example.name
)
BAD_IDS: Final = ("", "  ", "a\x00b", "a\nb", "x" * 257)
# Equal for whoever normalises text, folds case or drops a mark: different ids for everybody else.
LOOKALIKES: Final = (
    ("\u00e9", "e\u0301"),
    ("\ufb01", "fi"),
    ("A", "a"),
    ("\u00df", "ss"),
    ("\u0130", "i"),
    ("a b", "a  b"),
    ("\uff21", "A"),
)


def stored(workspace: Workspace, example: Example[SchedulerSession], name: str = "a") -> CanonicalModel:
    """Store the small model of a name, with its parents, and return it."""
    return SCHEDULER_EXAMPLES.store_small(
        workspace.storage.unbound, workspace.tenant, workspace.id(name), example.entity
    )


def ask(workspace: Workspace, example: Example[SchedulerSession], lookup: Lookup, value: Value) -> object:
    """Ask the repository of an entity for the row of some values."""
    return lookup(getattr(workspace.storage, example.repository), workspace.tenant, value)


def changed(value: Value, change: str) -> Value:
    """Return values whose texts are changed; ``{}`` stands for what they were."""

    def answer(name: str) -> object:
        found = value(name)
        return change.format(found) if isinstance(found, str) else found

    return answer


@dataclass(frozen=True, slots=True)
class Constant:
    """The same value under every name."""

    value: str

    def __call__(self, name: str) -> str:
        """Return the value."""
        del name
        return self.value


class KeyedRepositoryContract(Contract):
    """Look-ups by key or unique value: found, absent, foreign, refused."""

    @each_entity
    def test_every_look_up_finds_the_row_as_it_was_stored(
        self, workspace: Workspace, example: Example[SchedulerSession]
    ) -> None:
        model = example.rich(workspace.tenant, workspace.id("a"))
        if example.entity.parent is not None:
            stored(workspace, example)
        assert example.store(workspace.storage.unbound, workspace.tenant, model) == model
        value = example.value(workspace.tenant, model)
        for lookup in example.lookups:
            assert ask(workspace, example, lookup, value) == model
            assert ask(workspace, example, lookup, changed(value, " {} ")) == model
        assert_stored(workspace, example.entity, example.key(workspace.tenant, model), model)

    @each_entity
    def test_an_absent_row_is_nothing_or_an_error_with_the_normalised_key(
        self, workspace: Workspace, example: Example[SchedulerSession]
    ) -> None:
        stored(workspace, example, "other")
        value = example.value(workspace.tenant, example.small(workspace.tenant, workspace.id("missing")))
        for lookup in example.lookups:
            if not lookup.required:
                assert ask(workspace, example, lookup, value) is None
                continue
            with pytest.raises(NotFoundError) as absence:
                ask(workspace, example, lookup, changed(value, " {} "))
            owner = [workspace.tenant] if example.entity.tenant_field in example.entity.key else []
            wanted = ":".join([*owner, *(str(value(name)) for name in lookup.fields)])
            assert (absence.value.entity, absence.value.key) == (example.name, wanted)
            assert absence.value.driver == workspace.storage.driver

    @each_entity
    def test_a_row_of_another_tenant_is_as_absent_as_none(
        self, workspace: Workspace, example: Example[SchedulerSession]
    ) -> None:
        model = stored(workspace.elsewhere, example)
        value = example.value(workspace.foreign, model)
        for lookup in example.lookups:
            if lookup.method.names_tenant:
                if lookup.required:
                    with pytest.raises(NotFoundError):
                        ask(workspace, example, lookup, value)
                else:
                    assert ask(workspace, example, lookup, value) is None
                assert ask(workspace.elsewhere, example, lookup, value) == model

    @each_entity
    def test_keys_that_only_look_alike_are_different_keys(
        self, workspace: Workspace, example: Example[SchedulerSession]
    ) -> None:
        for number, (name, other) in enumerate(LOOKALIKES):
            model = stored(workspace, example, f"{number}{name}")
            twin = example.small(workspace.tenant, workspace.id(f"{number}{other}"))
            for lookup in example.lookups:
                if not lookup.required:
                    assert ask(workspace, example, lookup, example.value(workspace.tenant, model)) == model
                    assert ask(workspace, example, lookup, example.value(workspace.tenant, twin)) is None

    @each_entity
    def test_an_unacceptable_key_is_named_and_refused(
        self, workspace: Workspace, example: Example[SchedulerSession]
    ) -> None:
        for lookup in example.lookups:
            for bad in BAD_IDS:
                with pytest.raises(ValidationError, match=lookup.method.positional[-1]):
                    ask(workspace, example, lookup, Constant(bad))

    @each_entity
    def test_a_second_storage_finds_the_row(
        self, workspace: Workspace, example: Example[SchedulerSession]
    ) -> None:
        model = stored(workspace, example)
        with workspace.storages(1) as (other,):
            assert example.found(other.unbound, workspace.tenant, model) == model
