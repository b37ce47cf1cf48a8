"""Every value that a model admits comes back as it was written, and is stored as its canonical form."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from hypothesis import given
from hypothesis import strategies as st

from twinstore.models import json_text
from twinstore.models.canonical import CanonicalJsonSerializer
from twinstore.models.fields import DATE, date_in
from twinstore.testing.base import Contract, each, examples
from twinstore.testing.scalars import ids
from twinstore.testing.workspace import unique

if TYPE_CHECKING:
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.models.canonical import CanonicalModel
    from twinstore.testing.examples import Example
    from twinstore.testing.workspace import Workspace

__all__ = ["ValueContract"]

each_drawn = each("example", lambda kit: [item for item in kit.module.examples if item.drawn is not None])


def assert_stored(workspace: Workspace, entity: Entity, key: Key, model: CanonicalModel) -> None:
    """Assert that the store holds the canonical form of a model, and that the model is what was read."""
    row = workspace.probe.read(entity, key)
    assert row is not None
    # A store may keep a field that is a marker, too, beside the document.
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
    """Return JSON with the text of each date that an object stands for: some stores hold the date itself."""
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


def no_value(name: str) -> object:
    """Answer for no field: the list needs none."""
    raise LookupError(name)


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
                assert tuple(listed(getattr(session, example.repository), tenant, no_value)) == (model,)
