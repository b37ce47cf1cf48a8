"""On every driver two units that meet come to what each of them does alone; one of them may lose."""

from __future__ import annotations

from typing import TYPE_CHECKING

import hypothesis

from tests.differential.rivals import run_rivals

if TYPE_CHECKING:
    from tests.differential.sides import Side


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
    examples = profile.max_examples // (2 if long_form else 5)
    run_rivals(pairs, memory, hypothesis.settings(profile, max_examples=examples))
