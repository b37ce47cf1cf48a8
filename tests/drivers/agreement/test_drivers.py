"""Whatever is done, every driver answers the same and stores the same.

One run compares all three drivers, so it covers the three pairs at the price of three drivers instead of six.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import hypothesis
import pytest

from tools.differential.concurrent_units import run_concurrent_units
from tools.differential.machine import run_machine

if TYPE_CHECKING:
    from tools.differential.machine import Side


def test_memory_mongo_and_postgres_agree(
    memory: Side, mongo: Side, postgres: Side, bounded_profile: hypothesis.settings
) -> None:
    run_machine([memory, mongo, postgres], bounded_profile)


@pytest.mark.pgbouncer
def test_memory_and_postgres_behind_a_pooler_agree(
    memory: Side, pooled: Side, bounded_profile: hypothesis.settings
) -> None:
    run_machine([memory, pooled], bounded_profile)


def test_concurrent_units_of_memory_mongo_and_postgres_come_to_what_each_does_alone(
    memory: Side,
    memory_pair: tuple[Side, Side],
    mongo_pair: tuple[Side, Side],
    postgres_pair: tuple[Side, Side],
    profile: hypothesis.settings,
    *,
    long_form: bool,
) -> None:
    pairs = (memory_pair, mongo_pair, postgres_pair)
    examples = max(1, profile.max_examples // (2 if long_form else 5))
    run_concurrent_units(pairs, memory, hypothesis.settings(profile, max_examples=examples))
