"""The fuzz notices each check of a program that is removed; so what it tries finds a fault in any of them."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from tests.unit.fast.exact_way import Oracle
from tests.unit.fast.fuzz import mutants, taken, weakened
from tests.unit.fast.programs import programs
from twinstore.fast.nodes import NodeKind, TextFlag

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from twinstore.fast.program import Program

DOCUMENTS: Final = 3_000
ROUNDS: Final = 12
# This many documents that yield another row are checked.
LOOKED_AT: Final = 300
FORMS: Final = (
    TextFlag.TENANT
    | TextFlag.DIGEST
    | TextFlag.IDENTIFIER
    | TextFlag.TEMPLATE
    | TextFlag.CRON
    | TextFlag.LISTED
)
# By the flag that implies it: what else need not be asked of a text.
IMPLIED: Final[Mapping[str, TextFlag]] = {
    "NONEMPTY": FORMS,
    "TRIM": TextFlag.IDENTIFIER,
    "LOWER": TextFlag.IDENTIFIER,
    "length": TextFlag.TEMPLATE,
}


@cache
def tried(name: str, number: int) -> tuple[Sequence[bytes], Mapping[bytes, bytes]]:
    """Return some changed documents, and the rows of those that the true program takes."""
    raws = list(mutants(programs()[name], Random(f"weakened {name} {number}"), DOCUMENTS))
    return raws, {item.raw: item.row for item in taken(programs()[name], raws)}


def is_noticed(name: str, other: Program, number: int) -> bool:
    raws, known = tried(name, number)
    oracle = Oracle(programs()[name])
    news = [item for item in taken(other, raws) if known.get(item.raw) != item.row]
    return any(oracle.wrong(item.raw, item.row) for item in news[:LOOKED_AT])


def is_needless(program: Program, what: str) -> bool:
    """Whether a check is made elsewhere too, so that it may be removed."""
    place, kind, check, *_ = what.split()
    node = program.nodes[int(place)] if place.isdecimal() else None
    if node is None:
        return False
    if kind == NodeKind.TEXT.name:
        # No text of a packed row has U+0000, whatever is asked of it.
        return check == "NO_NUL" or bool(IMPLIED.get(check, TextFlag.NONE) & node.flags)
    # Without its key or its owner no row is packed.
    roles = (*program.key, *([] if program.tenant is None else [program.tenant]))
    needed = {program.slots[slot].name for slot in roles}
    return int(place) == program.root and check in needed and what.endswith(" required")


# Small ones, of two modules, on every push.
BOUNDED: Final = frozenset({"scheduler.schedules", "tracking.sessions"})
PROGRAMS: Final = [
    name if name in BOUNDED else pytest.param(name, marks=pytest.mark.long) for name in programs()
]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_fuzz_notices_a_check_that_is_removed(name: str) -> None:
    true = programs()[name]
    left = {what: other for what, other in weakened(true) if not is_needless(true, what)}
    assert len(left) > 5
    for number in range(ROUNDS):
        left = {what: other for what, other in left.items() if not is_noticed(name, other, number)}
        if not left:
            break
    assert not left, f"nothing that was tried tells that these are removed: {', '.join(left)}"
