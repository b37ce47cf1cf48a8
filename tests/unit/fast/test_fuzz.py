"""What native code accepts the product accepts, with equal values; and all that is canonical is accepted."""

from __future__ import annotations

from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any, Final

import bson
import pytest
from bson.codec_options import CodecOptions, DatetimeConversion
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.fast.exact_way import Oracle
from tests.unit.fast.fuzz import Generator, Outcome, fuzz, mutants, taken
from tests.unit.fast.programs import programs
from twinstore.fast.nodes import LOWER_KEYS, NodeKind
from twinstore.models.json_text import SMALLEST_PLAIN_FLOAT

if TYPE_CHECKING:
    from twinstore.fast.program import Program

DOCUMENTS: Final = 20_000
LONG: Final = 100 * DOCUMENTS
CANONICAL: Final = 25
CANONICAL_OF_LONG: Final = 60
SEED: Final = 13
TOLERANT: Final[CodecOptions[dict[str, Any]]] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_MS
)
# A whole document is much for hypothesis.
NO_CHECKS: Final = (HealthCheck.too_slow, HealthCheck.large_base_example, HealthCheck.data_too_large)


@pytest.mark.parametrize("name", programs())
def test_changed_documents_find_no_fault(name: str, long_form: bool) -> None:  # noqa: FBT001  # a fixture
    share = -(-(LONG if long_form else DOCUMENTS) // len(programs()))
    outcome = fuzz(share, SEED, names=[name])
    assert outcome.counts["documents"] == share
    # Else it would prove nothing.
    assert outcome.counts["accepted"] > share // 20
    assert outcome.counts["accepted"] < share
    assert not outcome.faults, "\n".join(map(str, outcome.faults[:5]))


@pytest.mark.parametrize("name", programs())
def test_every_canonical_document_is_accepted_and_comes_out_as_it_went_in(
    name: str, *, long_form: bool
) -> None:
    program, count = programs()[name], CANONICAL_OF_LONG if long_form else CANONICAL
    generator = Generator(program, Random(f"canonical {name}"))
    made = (generator.document() for _ in range(2 * count))
    has_lower = any(node.kind is NodeKind.JSON and node.flags & LOWER_KEYS for node in program.nodes)
    plain = (raw for raw in made if is_plain(bson.decode(raw, TOLERANT), has_lower=has_lower))
    documents = list(islice(plain, count))
    assert len(documents) == count
    accepted = taken(program, documents)
    assert [item.raw for item in accepted] == documents
    oracle = Oracle(program)
    assert [oracle.wrong(item.raw, item.row) for item in accepted] == [""] * count


def is_plain(value: object, *, has_lower: bool) -> bool:
    """Whether a value has nothing that is left to the exact way.

    That is numbers that are written with an exponent, and names beyond ASCII where they are in lower case.
    """
    if isinstance(value, dict):
        names_fit = not has_lower or all(map(str.isascii, value))
        return names_fit and all(is_plain(item, has_lower=has_lower) for item in value.values())
    if isinstance(value, list):
        return all(is_plain(item, has_lower=has_lower) for item in value)
    return not isinstance(value, float) or value == 0 or abs(value) >= SMALLEST_PLAIN_FLOAT


class TestTheFuzzItself:
    """It would notice."""

    @staticmethod
    def program() -> Program:
        return programs()["scheduler.runs"]

    def test_a_row_of_another_document_is_a_fault(self) -> None:
        generator = Generator(self.program(), Random(1))
        first, second = taken(self.program(), [generator.document(), generator.document()])
        assert Oracle(self.program()).wrong(first.raw, first.row) == ""
        assert "instead of" in Oracle(self.program()).wrong(first.raw, second.row)

    def test_a_row_of_a_document_that_the_product_refuses_is_a_fault(self) -> None:
        generator = Generator(self.program(), Random(2))
        (item,) = taken(self.program(), [generator.document()])
        broken = item.raw.replace(b"tenantId", b"tenantIx")
        assert "Unknown property" in Oracle(self.program()).wrong(broken, item.row)

    def test_a_row_that_ends_early_is_a_fault(self) -> None:
        generator = Generator(self.program(), Random(3))
        (item,) = taken(self.program(), [generator.document()])
        assert "cannot be read" in Oracle(self.program()).wrong(item.raw, item.row[:-1])

    def test_documents_are_repeatable(self) -> None:
        assert list(mutants(self.program(), Random(4), 50)) == list(mutants(self.program(), Random(4), 50))
        assert isinstance(fuzz(9, 1, names=["kit.places"]), Outcome)


@pytest.mark.long
@settings(deadline=None, suppress_health_check=[*NO_CHECKS])
@given(st.sampled_from(sorted(programs())), st.randoms(use_true_random=False))
def test_what_hypothesis_changes_finds_no_fault(name: str, random: Random) -> None:
    program = programs()[name]
    oracle = Oracle(program)
    for item in taken(program, list(mutants(program, random, 3, bases=1))):
        assert oracle.wrong(item.raw, item.row) == ""
