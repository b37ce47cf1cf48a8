"""Whatever is done, every driver answers the same and stores the same.

One run compares all three drivers, so it covers the three pairs at the price of three drivers instead of six.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import hypothesis
import pytest

from tools.differential.machine import run_machine
from tools.differential.rivals import run_rivals

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


def test_rival_units_of_memory_mongo_and_postgres_come_to_what_each_does_alone(
    memory: Side,
    memory_rivals: tuple[Side, Side],
    mongo_rivals: tuple[Side, Side],
    postgres_rivals: tuple[Side, Side],
    profile: hypothesis.settings,
    *,
    long_form: bool,
) -> None:
    pairs = (memory_rivals, mongo_rivals, postgres_rivals)
    examples = max(1, profile.max_examples // (2 if long_form else 5))
    run_rivals(pairs, memory, hypothesis.settings(profile, max_examples=examples))
