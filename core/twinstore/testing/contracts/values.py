"""Every value that a model admits comes back as it was written, and is stored as its canonical form.

Models that came past the checks of their class are refused, or stored like those that did not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from copy import deepcopy
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import TYPE_CHECKING, Final, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from twinstore.errors import TwinstoreError, ValidationError
from twinstore.models import json_text
from twinstore.models.canonical import CanonicalJsonSerializer, CanonicalModel
from twinstore.models.fields import DATE, date_in
from twinstore.testing.base import Contract, each, examples
from twinstore.testing.instants import at
from twinstore.testing.scalars import ids
from twinstore.testing.signatures import LIMIT, TENANT, fields_of, methods_of
from twinstore.testing.workspace import unique

if TYPE_CHECKING:
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.testing.examples import Example
    from twinstore.testing.signatures import Method, Value
    from twinstore.testing.workspace import Workspace

__all__ = ["UnvalidatedModelContract", "ValueContract"]

each_drawn = each("example", lambda kit: [item for item in kit.module.examples if item.drawn is not None])


def assert_stored(workspace: Workspace, entity: Entity, key: Key, model: CanonicalModel) -> None:
    """Assert that the store holds the canonical form of a model, and that the model is what was read."""
    row = workspace.probe.read(entity, key)
    assert row is not None
    # A store may keep a field that is also a marker next to the document.
    stored = {name: value for name, value in row.document.items() if name not in entity.markers}
    wire = {name: value for name, value in model.wire().items() if name not in entity.markers}
    # Columns hold what the wire form leaves out, such as an empty list.
    left_out = {shape.wire for shape in entity.shapes.values() if shape.left_out and shape.wire not in wire}
    stored = {name: value for name, value in stored.items() if value or name not in left_out}
    assert json_text.dumps_sorted(plain(stored)) == json_text.dumps_sorted(plain(wire))


def plain(value: object) -> object:
    """Return the value as parsed JSON, in which an instant is its text however it is stored."""
    return undated(json_text.parse_json(json_text.dumps_sorted(value)))


def undated(value: object) -> object:
    """Return JSON with the text of each date that an object represents: some stores hold the date itself."""
    match value:
        case dict():
            found = cast("dict[str, object]", value)
            if date_in(found) is not None:
                return found[DATE]
            return {name: undated(item) for name, item in found.items()}
        case list():
            return [undated(item) for item in cast("list[object]", value)]
        case _:
            return value


def same_bytes(read: object, written: CanonicalModel) -> bool:
    """Whether two models have the same canonical bytes."""
    assert isinstance(read, type(written))
    return CanonicalJsonSerializer.serialize(read) == CanonicalJsonSerializer.serialize(written)


def any_id(data: st.DataObject) -> str:
    """Draw an id that no other example has."""
    return f"{unique('id')}{data.draw(ids())}"[:256].strip()


class ValueContract(Contract):
    """Round trips over the full range of values."""

    @each_drawn
    @examples(8)
    @given(data=st.data())
    def test_any_row_comes_back(self, workspace: Workspace, example: Example, data: st.DataObject) -> None:
        assert example.drawn is not None
        tenant, session = unique("t"), workspace.storage.unbound
        model = data.draw(example.drawn(tenant, any_id(data)))
        assert example.store(session, tenant, model) == model
        assert same_bytes(example.found(session, tenant, model), model)
        assert_stored(workspace, example.entity, example.key(tenant, model), model)
        for listed in example.lists:
            if listed.method.name == "list" and listed.method.names_tenant:
                # A list of children names their parent.
                values = example.value(tenant, model)
                assert tuple(listed(getattr(session, example.repository), tenant, values)) == (model,)


CONTENT: Final = "c0ntent"
WORD: Final = re.compile(r"\w+")
# The methods that store a new row.
CREATES: Final = frozenset(
    {"add", "append", "append_event", "create", "insert", "register", "save", "upload", "upsert"}
)
# Times of other libraries have their own offset classes.
OFFSET: Final = timezone(timedelta(hours=5, minutes=30))


class Odd:
    """A value that no field admits."""

    @override
    def __repr__(self) -> str:
        """Show what no message may hold."""
        return CONTENT


class OddText(str):
    """A text of a special class."""

    __slots__ = ()


class OddInteger(int):
    """An integer of a special class."""


class OddNumber(float):
    """A number of a special class, as numpy has."""


class OddInstant(datetime):
    """An instant of a special class, as pendulum and pandas have; it keeps that class when it is changed."""


class OddMap(dict[object, object]):
    """A map of a special class."""


class OddList(list[object]):
    """A list of a special class."""


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


# A subclass comes before its base: a flag is an integer, and an enumeration a text.
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


def corrupted_copies(model: CanonicalModel) -> Iterator[CanonicalModel]:
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


def methods_accepting(example: Example, model: CanonicalModel) -> list[Method]:
    """Return the methods that take the model of an entity."""
    return [
        method
        for method in methods_of(example.protocol)
        if any(accepts(kind, model) for kind in method.kinds)
    ]


def accepts(kind: str, model: CanonicalModel) -> bool:
    """Whether a parameter of this annotation takes a model, or several of them."""
    return type(model).__name__ in WORD.findall(kind)


def arguments_of(example: Example, method: Method, tenant: str, model: CanonicalModel) -> dict[str, object]:
    """Return the arguments of a method that takes a model: the model, and values from it."""
    value = example.value(tenant, model)
    names = [name for name in method.positional if name not in {TENANT, LIMIT}]
    meant = dict(zip(names, fields_of(example.entity, method), strict=True))
    kinds = dict(zip(method.positional, method.kinds, strict=True))
    return {name: argument(kinds[name], model, meant[name], value) for name in names}


def argument(kind: str, model: CanonicalModel, field: str, value: Value) -> object:
    """Return one argument."""
    if accepts(kind, model):
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
        for method in methods_accepting(example, model):
            for bad in (*corrupted_copies(model), with_further_field(model)):
                arguments = {
                    name: bad if item is model else [bad] if item == [model] else item
                    for name, item in arguments_of(example, method, tenant, model).items()
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
        odd_model = cast("CanonicalModel", odd(deepcopy(model)))
        method.call(repository, tenant, (), **arguments_of(example, method, tenant, odd_model))
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
            for method in methods_accepting(example, model):
                if method.name in CREATES:
                    with suppress(TwinstoreError):
                        method.call(
                            repository, there.tenant, (), **arguments_of(example, method, there.tenant, model)
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
