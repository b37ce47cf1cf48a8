"""What keeps the rows of tenants apart: row-level security, policies and rights, and no more than wanted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from twinstore_postgres.deviations import Part, deviations, parts_of, tables_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from collections.abc import Set as AbstractSet

__all__ = ["protection_differences"]

POLICY: Final = "policy"
GRANT: Final = "grant"
KINDS: Final = frozenset({"table", POLICY, GRANT})
# Where a policy decides row by row; it has no say in TRUNCATE.
POLICED: Final = frozenset({"SELECT", "INSERT", "UPDATE", "DELETE"})
SURPLUS: Final = f"Not wanted: {GRANT} "
# How servers of different versions write an expression, and whether they name the schema of what it looks at.
SPELLING: Final = re.compile(r"::\"?\w+\"?|\bAS \w+|[()\s]")


def protection_differences(
    real: Collection[str], wanted: Collection[str], schema: str, role: str, *, rights: bool
) -> tuple[str, ...]:
    """Return what is lost or added of the protection of our tables, each with the statement that mends it.

    A right that is missing is no danger: the call that needs it says so. Tables of somebody else do not
    matter.

    Args:
        real: the lines of the schema that is there.
        wanted: the lines of the one that should be.
        schema: its name.
        role: the role that answers requests.
        rights: whether that role should have no rights beyond the wanted ones.
    """
    should = tuple(line for line in wanted if Part.of(line).kind in KINDS)
    tables = tables_of(parts_of(should))
    kinds = KINDS if rights else KINDS - {GRANT}
    guarded = {Part.of(line).table for line in should if Part.of(line).kind == POLICY}
    has = {
        line for line in real if is_of(Part.of(line), kinds, tables) and not is_bound(Part.of(line), guarded)
    }
    found = deviations(
        frozenset(respelled(has, should, schema)),
        tuple(line for line in should if Part.of(line).kind != GRANT or line in has),
        schema,
        role,
        additions=False,
    )
    elsewhere = f" (it may also come through PUBLIC, or a role of which {role} is a member)"
    return tuple(line + elsewhere if line.startswith(SURPLUS) else line for line in found)


def is_of(part: Part, kinds: AbstractSet[str], tables: AbstractSet[str]) -> bool:
    """Whether a part is of one of these kinds, and of one of these tables."""
    return part.kind in kinds and (part.name if part.kind == "table" else part.table) in tables


def is_bound(part: Part, guarded: AbstractSet[str]) -> bool:
    """Whether a right lets nobody past the policies: a repair of append-only rows needs it for a while."""
    return part.kind == GRANT and part.rest in POLICED and part.table in guarded


def respelled(real: Collection[str], wanted: Collection[str], schema: str) -> Iterator[str]:
    """Yield the lines of a schema, policies that say the same as a wanted one in the words of that."""
    known = {spelling(line, schema): line for line in wanted if line.startswith(POLICY)}
    for line in real:
        yield known.get(spelling(line, schema), line) if line.startswith(POLICY) else line


def spelling(line: str, schema: str) -> str:
    """Return what two lines have in common that say the same of a policy."""
    return SPELLING.sub("", line.replace(f"{schema}.", "").replace(f'"{schema}".', ""))
