"""Models that came past the checks of their class: refused, or stored like those that did not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from copy import deepcopy
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import TYPE_CHECKING, Final, cast

import pytest
from typing_extensions import override

from twinstore.errors import TwinstoreError, ValidationError
from twinstore.models.canonical import CanonicalModel
from twinstore.testing.base import Contract, each
from twinstore.testing.instants import at
from twinstore.testing.signatures import LIMIT, TENANT, fields_of, methods_of

if TYPE_CHECKING:
    from twinstore.testing.examples import Example
    from twinstore.testing.signatures import Method, Value
    from twinstore.testing.workspace import Workspace

__all__ = ["UnvalidatedModelContract"]

CONTENT: Final = "c0ntent"
WORD: Final = re.compile(r"\w+")
# The methods that store a new row.
CREATES: Final = frozenset(
    {"add", "append", "append_event", "create", "insert", "register", "save", "upload", "upsert"}
)
# Times of other libraries have offsets of their own.
OFFSET: Final = timezone(timedelta(hours=5, minutes=30))


class Odd:
    """A value that no field admits."""

    @override
    def __repr__(self) -> str:
        """Show what no message may hold."""
        return CONTENT


class OddText(str):
    """A text of a class of its own."""

    __slots__ = ()


class OddInteger(int):
    """An integer of a class of its own."""


class OddNumber(float):
    """A number of a class of its own, as numpy has."""


class OddInstant(datetime):
    """An instant of a class of its own, as pendulum and pandas have; it stays one when it is changed."""


class OddMap(dict[object, object]):
    """A map of a class of its own."""


class OddList(list[object]):
    """A list of a class of its own."""


def odd(value: object) -> object:
    """Return an equal value of other classes, at every depth; models are changed in place."""
    if isinstance(value, CanonicalModel):
        for name, item in list(value.__dict__.items()):
            object.__setattr__(value, name, odd(item))
    elif isinstance(value, (tuple, list)):
        return OddList(map(odd, cast("list[object]", value)))
    elif isinstance(value, dict):
        return OddMap((odd(name), odd(item)) for name, item in cast("dict[object, object]", value).items())
    else:
        for kind, changed in SCALARS:
            if isinstance(value, kind):
                return changed(value)
    return value


def odd_instant(value: datetime) -> datetime:
    """Return the same instant, of another class and in another zone."""
    there = value.astimezone(OFFSET)
    return OddInstant.combine(there.date(), there.time(), there.tzinfo)


def odd_member(value: Enum) -> OddText:
    """Return the text of a member, of another class."""
    return OddText(value.value)


# A subclass stands before its base: a flag is an integer, and an enumeration a text.
SCALARS: Final[tuple[tuple[type, Callable[..., object]], ...]] = (
    (bool, bool),
    (datetime, odd_instant),
    (Enum, odd_member),
    (str, OddText),
    (int, OddInteger),
    (float, OddNumber),
)


def classes_of(value: object) -> Iterator[type]:
    """Yield the classes of all values that a value is made of."""
    yield type(value)
    if isinstance(value, dict):
        for name, item in cast("dict[object, object]", value).items():
            yield from (*classes_of(name), *classes_of(item))
    elif isinstance(value, (list, tuple)):
        for item in cast("list[object]", value):
            yield from classes_of(item)


def models_in(value: object) -> Iterator[CanonicalModel]:
    """Yield all models that a value is made of."""
    if isinstance(value, CanonicalModel):
        yield value
        for item in value.__dict__.values():
            yield from models_in(item)
    elif isinstance(value, (list, tuple)):
        for item in cast("list[object]", value):
            yield from models_in(item)


def spoiled(model: CanonicalModel) -> Iterator[CanonicalModel]:
    """Yield copies of a model in each of which one value, at any depth, is none that it may hold."""
    for place, inner in enumerate(models_in(model)):
        for name, value in inner.__dict__.items():
            copied = deepcopy(model)
            object.__setattr__(list(models_in(copied))[place], name, Odd())
            yield copied
            if isinstance(value, dict):
                copied = deepcopy(model)
                list(models_in(copied))[place].__dict__[name]["odd"] = Odd()
                yield copied


def takers_of(example: Example, model: CanonicalModel) -> list[Method]:
    """Return the methods that take the model of an entity."""
    return [
        method for method in methods_of(example.protocol) if any(takes(kind, model) for kind in method.kinds)
    ]


def takes(kind: str, model: CanonicalModel) -> bool:
    """Whether a parameter of this annotation takes a model, or several of them."""
    return type(model).__name__ in WORD.findall(kind)


def told(example: Example, method: Method, tenant: str, model: CanonicalModel) -> dict[str, object]:
    """Return the arguments of a method that takes a model: beside it, what the model itself says."""
    value = example.value(tenant, model)
    names = [name for name in method.positional if name not in {TENANT, LIMIT}]
    meant = dict(zip(names, fields_of(example.entity, method), strict=True))
    kinds = dict(zip(method.positional, method.kinds, strict=True))
    return {name: argument(kinds[name], model, meant[name], value) for name in names}


def argument(kind: str, model: CanonicalModel, field: str, value: Value) -> object:
    """Return one argument."""
    if takes(kind, model):
        return [model] if kind.startswith("Sequence") else model
    if kind == "datetime":
        return at()
    of_kind = [item for item in model.__dict__.values() if type(item).__name__ == kind]
    return of_kind[0] if kind != "str" and of_kind else value(field)


class UnvalidatedModelContract(Contract):
    """``model_copy`` and ``model_construct`` check nothing, and a field may be changed in place."""

    @each("example", lambda kit: (item for item in kit.module.examples if CREATES & names_of(item)))
    def test_a_model_that_breaks_a_rule_is_refused_before_anything_is_written(
        self, workspace: Workspace, example: Example
    ) -> None:
        tenant = workspace.tenant
        repository = getattr(workspace.storage.unbound, example.repository)
        self.store_parents(workspace, example)
        model = example.rich(tenant, workspace.id("a"))
        for method in takers_of(example, model):
            for bad in (*spoiled(model), with_further_field(model)):
                arguments = {
                    name: bad if item is model else [bad] if item == [model] else item
                    for name, item in told(example, method, tenant, model).items()
                }
                with pytest.raises(ValidationError) as caught:
                    method.call(repository, tenant, (), **arguments)
                assert CONTENT not in str(caught.value)
        assert workspace.probe.read(example.entity, example.key(tenant, model)) is None

    @each("example", lambda kit: (item for item in kit.module.examples if CREATES & names_of(item)))
    def test_values_of_other_classes_are_stored_as_plain_ones(
        self, workspace: Workspace, example: Example
    ) -> None:
        tenant = workspace.tenant
        repository = getattr(workspace.storage.unbound, example.repository)
        self.store_parents(workspace, example)
        method, model = self.created(workspace, example)
        strange = cast("CanonicalModel", odd(deepcopy(model)))
        method.call(repository, tenant, (), **told(example, method, tenant, strange))
        found = example.found(workspace.storage.unbound, tenant, model)
        assert isinstance(found, CanonicalModel)
        row = workspace.probe.read(example.entity, example.key(tenant, model))
        assert row is not None
        for kind in (*classes_of(found.wire()), *classes_of(row.document), *classes_of(row.markers)):
            assert kind.__module__ != __name__

    @each("example", lambda kit: (item for item in kit.module.examples if item.lookups or item.lists))
    def test_arguments_of_other_classes_find_the_same_rows(
        self, workspace: Workspace, example: Example
    ) -> None:
        tenant, name = workspace.tenant, OddText(workspace.tenant)
        stored = self.module.store_small(workspace.storage.unbound, tenant, workspace.id("a"), example.entity)
        value = example.value(tenant, stored)

        def odd_value(field: str) -> object:
            return odd(value(field))

        with ExitStack() as stack:
            sessions = [workspace.storage.unbound]
            if workspace.storage.capabilities.sessions and example in self.module.of_tenants:
                # It asks under the text of the session, whatever the call names.
                sessions.append(stack.enter_context(workspace.storage.sessions.open(name)))
            for session in sessions:
                repository = getattr(session, example.repository)
                for lookup in example.lookups:
                    if session is sessions[0] or lookup.method.names_tenant:
                        found = lookup(repository, tenant, value)
                        assert lookup(repository, name, odd_value) == found
                for listed in example.lists:
                    if session is sessions[0] or listed.method.names_tenant:
                        page = listed(repository, tenant, value, limit=3)
                        assert listed(repository, name, odd_value, limit=3).items == page.items

    def created(self, workspace: Workspace, example: Example) -> tuple[Method, CanonicalModel]:
        """Return a method that stores a new row, and a model that it takes: one that it took elsewhere."""
        there = workspace.elsewhere
        self.store_parents(there, example)
        repository = getattr(there.storage.unbound, example.repository)

        def varied(tenant: str, key: str) -> CanonicalModel:
            return example.vary(tenant, key, 0)

        for build in (example.small, example.rich, varied):
            model = build(there.tenant, there.id("a"))
            for method in takers_of(example, model):
                if method.name in CREATES:
                    with suppress(TwinstoreError):
                        method.call(
                            repository, there.tenant, (), **told(example, method, there.tenant, model)
                        )
                        return method, build(workspace.tenant, workspace.id("a"))
        pytest.skip(f"{example.name} are stored by methods that take no model")

    def store_parents(self, workspace: Workspace, example: Example) -> None:
        """Store what the row of an example belongs to."""
        if example.entity.parent is not None:
            self.module.store_small(
                workspace.storage.unbound, workspace.tenant, workspace.id("a"), example.entity.parent.entity
            )


def names_of(example: Example) -> set[str]:
    """Return the names of the methods of a repository."""
    return {method.name for method in methods_of(example.protocol)}


def with_further_field(model: CanonicalModel) -> CanonicalModel:
    """Return a copy of a model with a field that its class does not have."""
    copied = deepcopy(model)
    object.__setattr__(copied, "note", CONTENT)
    return copied
