"""The machine is worth nothing unless it finds a way through a driver that is wrong in one small point."""

from __future__ import annotations

from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests.differential.access_machine import AccessDivergenceError, run_access_machine
from tests.differential.test_access_agrees import memory_access
from tests.differential.test_machine_can_fail import SEARCH
from tests.wrong_access import CommitsEveryCall, FindsForeignRows, wrong_module
from twinstore.testing.entities import MODULE

if TYPE_CHECKING:
    from twinstore.testing.defaults import DefaultsOnly


# The cases of the kit find more of them: tests/unit/test_testing_access.py.
@pytest.mark.parametrize("wrong", [FindsForeignRows, CommitsEveryCall])
def test_a_way_that_is_wrong_in_one_point_is_found(wrong: type[DefaultsOnly]) -> None:
    sides = [memory_access("right", MODULE), memory_access("wrong", wrong_module(wrong))]
    with pytest.raises(AccessDivergenceError):
        run_access_machine(sides, SEARCH)


def test_two_equal_ways_agree() -> None:
    sides = [memory_access(name, MODULE) for name in ("left", "right")]
    run_access_machine(sides, hypothesis.settings(SEARCH, max_examples=10))
