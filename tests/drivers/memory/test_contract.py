from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from twinstore.testing import DriverContract
from twinstore_memory.testing import memory_deployments

if TYPE_CHECKING:
    from twinstore.testing import BackendFactory


@pytest.fixture(scope="module")
def backend_factory() -> BackendFactory:
    return memory_deployments


# One with times, one with free JSON, one with numbers, one below a parent.
DRAWN: Final = ("schedules", "policy_jobs", "run_summaries", "execution_logs")


def is_left_to_the_full_form(kit: type[object], test: str, case: str) -> bool:
    """Whether a case draws values of one more entity; every driver's codecs meet them in other tests."""
    del kit
    return test == "test_any_row_comes_back" and case not in DRAWN


class TestMemory(DriverContract):
    """The executable specification."""
