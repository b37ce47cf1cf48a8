"""What most tests of the migration tool begin with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.copies import MemoryPair, fill, memory_pair
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[MemoryPair]:
    """Return two stores in memory, of which the source holds some of everything."""
    with memory_pair(tmp_path) as pair:
        fill(pair.source.storage)
        yield pair


@pytest.fixture
def copied(pair: MemoryPair) -> None:
    """Copy, so that both stores hold the same."""
    assert pair.copy().exit is Exit.OK
