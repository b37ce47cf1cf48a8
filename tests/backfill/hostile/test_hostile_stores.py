"""Any document or row that a server holds is copied or kept back with its bytes; none stops anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.backfill.hostile.documents import ENTITIES
from tests.backfill.hostile.planting import figures_of_documents, figures_of_rows

if TYPE_CHECKING:
    from tests.databases import MongoServer, PostgresServer

DOCUMENTS, ROWS = "MongoDB to PostgreSQL", "PostgreSQL to MongoDB"
DIRECTIONS: Final = (DOCUMENTS, ROWS)
# Of each entity; one copy and one verification each, so that little is spent on starting them.
# In the full form half a million in each direction, in batches that memory does not notice.
BATCHES: Final = ((1, 100), *(pytest.param(seed, 1260, marks=pytest.mark.long) for seed in range(100, 140)))


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("seed", "each"), BATCHES)
def test_hostile_rows_are_copied_or_kept_back(  # noqa: PLR0917  # fixtures and parameters
    seed: int,
    each: int,
    direction: str,
    mongo_server: MongoServer,
    postgres_server: PostgresServer,
    tmp_path: Path,
) -> None:
    figures_of = figures_of_documents if direction == DOCUMENTS else figures_of_rows
    with mongo_server.database() as documents, postgres_server.migrated_database() as rows:
        figures = figures_of(documents, rows, tmp_path, each=each, seed=seed)
    # Some documents are none that the server takes; every row is one.
    assert len(ENTITIES) * each * (0.9 if direction == DOCUMENTS else 1) <= figures.tried
    assert figures.tried <= len(ENTITIES) * each
    # A generator of which the models took nothing, or all, would try nothing.
    assert figures.copied > figures.tried / 10
    assert figures.quarantined.total() > figures.tried / 10
