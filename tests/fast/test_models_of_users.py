"""What modules of other authors have and ours do not: maps whose order is kept, numbers in lists of models.

Native code and the models store the same of them.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from tests.fast.test_copy_rows import expected, sent, stored, written
from tests.fast.test_reading_copy import check
from twinstore.catalog.entity import Entity
from twinstore.catalog.keys import text
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import Tenancy
from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import Id, Int64, Number, TenantId, Text


class Part(CanonicalModel):
    """A nested model with a floating-point number."""

    share: Number | None = None


class Whole(CanonicalModel):
    """A row with maps and lists of it."""

    id: Id
    tenant_id: TenantId
    counts: dict[Text, Int64] = Field(default_factory=dict)
    named: dict[Text, Part] = Field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    shares: tuple[Number, ...] = ()


WHOLES: Entity[Whole] = Entity(
    name="wholes",
    singular="whole",
    module="users",
    model=Whole,
    key_parts=(text("id"),),
    tenancy=Tenancy.required(),
    group="users",
)


def document(**values: Any) -> bytes:  # noqa: ANN401  # the fields of a model
    return stored(WHOLES, Row(Whole(id="one", tenant_id="acme", **values)))


def test_a_map_whose_order_the_model_keeps_becomes_the_same_document() -> None:
    assert check(WHOLES, sent(WHOLES, document(counts={"a": 1, "b": 2})))
    # JSONB has short names first; the models leave them so, and native code, whose names rise, declines.
    assert not check(WHOLES, sent(WHOLES, document(counts={"b": 1, "aa": 2})))
    assert not check(WHOLES, sent(WHOLES, document(named={"b": Part(), "aa": Part()})))


def test_whole_numbers_in_lists_and_maps_of_models_are_written_alike() -> None:
    for number in (3.0, float(2**40), 0.5):
        part = Part(share=number)
        for raw in (document(parts=(part,)), document(shares=(number,)), document(named={"a": part})):
            row = written(WHOLES, raw)
            assert row is not None
            assert row == expected(WHOLES, raw)
            assert b"3.0" not in row
            assert check(WHOLES, row)
