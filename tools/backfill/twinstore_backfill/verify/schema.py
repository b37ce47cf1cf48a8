"""C8: whether the target would go on as the migrations made it: tables, keys, indexes, policies, settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore_backfill.verify.checks import listed_check

if TYPE_CHECKING:
    from twinstore_backfill.report.model import Check
    from twinstore_backfill.stores import Store

__all__ = ["SCHEMA", "schema_check"]

SCHEMA: Final = "target schema"


def schema_check(target: Store) -> Check:
    """Compare the schema of the target with the wanted one.

    Equal rows behind a missing key or policy are equal today only: the next write, or the next tenant, is
    judged by another schema, or by an unsafe setting of the database. So a difference leaves the proof open;
    what merely is there in addition, such as an index for speed, does not.
    """
    found = target.storage.initializer.verify(additions=False)
    return listed_check(
        "C8",
        SCHEMA,
        "inconclusive" if found else "pass",
        "tables, keys, indexes and policies compared with the migrations",
        found,
    )
