"""What every repository must do with a key, whatever the entity: asked of each one that is described."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import pytest

from twinstore.catalog.keys import KeyType
from twinstore.errors import NotFoundError, ValidationError
from twinstore.testing.base import Contract, each, each_example
from twinstore.testing.contracts.values import assert_stored
from twinstore.testing.signatures import TENANT

if TYPE_CHECKING:
    from twinstore.catalog.entity import Entity
    from twinstore.models.canonical import CanonicalModel
    from twinstore.testing.examples import Example
    from twinstore.testing.signatures import Lookup, Value
    from twinstore.testing.workspace import Workspace

__all__ = ["KeyedRepositoryContract"]

each_owned = each("example", lambda kit: [item for item in kit.module.examples if item.is_owned])
each_with_text = each("example", lambda kit: [item for item in kit.module.examples if has_text(item.entity)])
# Invalid values of a parameter, by its annotation.
BAD_IDS: Final[Mapping[str, tuple[object, ...]]] = {
    "str": ("", "  ", "a\x00b", "a\nb", "x" * 257),
    "int": ("", "1", "x", None, 1.5, True, 2**63),
}
# Equal for a store that normalises text, folds case or drops a mark: different ids for every other one.
LOOKALIKES: Final = (
    ("\u00e9", "e\u0301"),
    ("\ufb01", "fi"),
    ("A", "a"),
    ("\u00df", "ss"),
    ("\u0130", "i"),
    ("a b", "a  b"),
    ("\uff21", "A"),
)


def has_text(entity: Entity) -> bool:
    """Whether a text that is not a tenant distinguishes the rows of an entity."""
    return any(part.type is KeyType.TEXT and part.field != entity.tenant_field for part in entity.key_parts)


def look_up(workspace: Workspace, example: Example, lookup: Lookup, value: Value) -> object:
    """Ask the repository of an entity for the row of some values."""
    return lookup(getattr(workspace.storage.unbound, example.repository), workspace.tenant, value)


def changed(value: Value, change: str) -> Value:
    """Return values whose texts are changed; ``{}`` represents their old values."""

    def answer(name: str) -> object:
        found = value(name)
        return change.format(found) if isinstance(found, str) else found

    return answer


def replaced(value: Value, field: str, bad: object) -> Value:
    """Return values of which one is another."""
    return lambda name: bad if name == field else value(name)


def arguments_of(lookup: Lookup) -> list[tuple[str, str, str]]:
    """Return parameter, field and annotation of the arguments of a look-up other than the tenant."""
    kinds = zip(lookup.method.positional, lookup.method.kinds, strict=True)
    parameters = [(parameter, kind) for parameter, kind in kinds if parameter != TENANT]
    return [
        (parameter, field, kind) for (parameter, kind), field in zip(parameters, lookup.fields, strict=True)
    ]


class KeyedRepositoryContract(Contract):
    """Look-ups by key or unique value: found, absent, foreign, refused."""

    def store_small(self, workspace: Workspace, example: Example, name: str = "a") -> CanonicalModel:
        """Store the small model of a name, with its parents, and return it."""
        return self.module.store_small(
            workspace.storage.unbound, workspace.tenant, workspace.id(name), example.entity
        )

    @each_example
    def test_every_look_up_finds_the_row_as_it_was_stored(
        self, workspace: Workspace, example: Example
    ) -> None:
        model = example.rich(workspace.tenant, workspace.id("a"))
        if example.entity.parent is not None:
            session, name = workspace.storage.unbound, workspace.id("a")
            self.module.store_small(session, workspace.tenant, name, example.entity.parent.entity)
        assert example.store(workspace.storage.unbound, workspace.tenant, model) == model
        value = example.value(workspace.tenant, model)
        for lookup in example.lookups:
            assert look_up(workspace, example, lookup, value) == model
            assert look_up(workspace, example, lookup, changed(value, " {} ")) == model
        assert_stored(workspace, example.entity, example.key(workspace.tenant, model), model)

    @each_example
    def test_an_absent_row_is_nothing_or_an_error_with_the_normalised_key(
        self, workspace: Workspace, example: Example
    ) -> None:
        self.store_small(workspace, example, "other")
        value = example.value(workspace.tenant, example.small(workspace.tenant, workspace.id("missing")))
        for lookup in example.lookups:
            if not lookup.required:
                assert look_up(workspace, example, lookup, value) is None
                continue
            with pytest.raises(NotFoundError) as absence:
                look_up(workspace, example, lookup, changed(value, " {} "))
            owner = [workspace.tenant] if example.entity.tenant_field in example.entity.key else []
            wanted = ":".join([*owner, *(str(value(name)) for name in lookup.fields)])
            assert (absence.value.entity, absence.value.key) == (example.name, wanted)
            assert absence.value.driver == workspace.storage.driver

    @each_owned
    def test_a_row_of_another_tenant_is_as_absent_as_none(
        self, workspace: Workspace, example: Example
    ) -> None:
        model = self.store_small(workspace.elsewhere, example)
        value = example.value(workspace.foreign, model)
        for lookup in example.lookups:
            if lookup.method.names_tenant:
                if lookup.required:
                    with pytest.raises(NotFoundError):
                        look_up(workspace, example, lookup, value)
                else:
                    assert look_up(workspace, example, lookup, value) is None
                assert look_up(workspace.elsewhere, example, lookup, value) == model

    @each_with_text
    def test_keys_that_only_look_alike_are_different_keys(
        self, workspace: Workspace, example: Example
    ) -> None:
        for number, (name, other) in enumerate(LOOKALIKES):
            model = self.store_small(workspace, example, f"{number}{name}")
            twin = example.small(workspace.tenant, workspace.id(f"{number}{other}"))
            for lookup in example.lookups:
                if not lookup.required:
                    assert (
                        look_up(workspace, example, lookup, example.value(workspace.tenant, model)) == model
                    )
                    assert look_up(workspace, example, lookup, example.value(workspace.tenant, twin)) is None

    @each_example
    def test_an_unacceptable_key_is_named_and_refused(self, workspace: Workspace, example: Example) -> None:
        value = example.value(workspace.tenant, example.small(workspace.tenant, workspace.id("a")))
        for lookup in example.lookups:
            for parameter, field, kind in arguments_of(lookup):
                for bad in BAD_IDS[kind]:
                    with pytest.raises(ValidationError, match=parameter):
                        look_up(workspace, example, lookup, replaced(value, field, bad))

    @each_example
    def test_a_second_storage_finds_the_row(self, workspace: Workspace, example: Example) -> None:
        model = self.store_small(workspace, example)
        with workspace.storages(1) as (other,):
            assert example.found(other.unbound, workspace.tenant, model) == model
