"""A row of the ledger that nobody can read ends what needs it: else a finished range would be forgotten."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.backfill.toolkit import fill, memory_pair
from twinstore.errors import DocumentDecodeError
from twinstore.ledger.catalog import JOBS, RANGES
from twinstore_memory.rows import plant, stored_rows

if TYPE_CHECKING:
    from pathlib import Path

    from twinstore.catalog.entity import Entity


@pytest.mark.parametrize("entity", [JOBS, RANGES], ids=lambda entity: entity.name)
def test_it_is_never_passed_over(entity: Entity, tmp_path: Path) -> None:
    with memory_pair(tmp_path) as pair:
        fill(pair.source.storage, ["acme"])
        pair.copy()
        ledger = pair.target.ledger
        (job,) = ledger.jobs()
        row = next(iter(stored_rows(pair.stores[1], entity).values()))
        plant(pair.stores[1], replace(row, document={**row.document, "state": 5, "fingerprint": 5}))
        with pytest.raises(DocumentDecodeError):
            list(ledger.jobs() if entity is JOBS else ledger.ranges(job.id))
