"""Whatever is done, every driver answers the same and stores the same.

One run compares all three drivers, so it covers the three pairs at the price of three drivers instead of six.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.differential.machine import run_machine

if TYPE_CHECKING:
    import hypothesis

    from tests.differential.sides import Side


def test_memory_mongo_and_postgres_agree(
    memory: Side, mongo: Side, postgres: Side, bounded_profile: hypothesis.settings
) -> None:
    run_machine([memory, mongo, postgres], bounded_profile)


@pytest.mark.pgbouncer
def test_memory_and_postgres_behind_a_pooler_agree(
    memory: Side, pooled: Side, bounded_profile: hypothesis.settings
) -> None:
    run_machine([memory, pooled], bounded_profile)
