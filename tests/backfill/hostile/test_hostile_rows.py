"""Any row that a PostgreSQL holds is copied, or kept back with its text; none of them stops anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.backfill.hostile.documents import ENTITIES
from tests.backfill.hostile.judging import Figures
from tests.backfill.hostile.planting import figures_of_rows, tell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.databases import MongoServer, PostgresServer

# Of each entity; one copy and one verification each, so that little is spent on starting them.
BATCHES: Final = ((1, 100), pytest.param(2, 500, marks=pytest.mark.long))
# Half a million, in batches that memory does not notice.
EACH_OF_LONG: Final = 1260
SEEDS_OF_LONG: Final = range(100, 140)


@pytest.mark.parametrize(("seed", "each"), BATCHES)
def test_hundreds_of_hostile_rows_are_copied_or_kept_back(
    seed: int, each: int, mongo_server: MongoServer, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    figures = run(mongo_server, postgres_server, tmp_path, each=each, seed=seed)
    assert figures.tried == len(ENTITIES) * each
    # A generator of which the models took nothing, or all, would try nothing.
    assert figures.copied > figures.tried / 10
    assert figures.quarantined.total() > figures.tried / 10


@pytest.fixture(scope="module")
def whole(request: pytest.FixtureRequest) -> Iterator[Figures]:
    """Collect the figures of all batches, and tell them at the end."""
    figures = Figures()
    yield figures
    if figures.tried:
        tell(request.config, f"PostgreSQL to MongoDB: {figures.text()}")


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS_OF_LONG)
def test_half_a_million_hostile_rows_are_copied_or_kept_back(
    seed: int, mongo_server: MongoServer, postgres_server: PostgresServer, tmp_path: Path, whole: Figures
) -> None:
    whole.add(run(mongo_server, postgres_server, tmp_path, each=EACH_OF_LONG, seed=seed))


def run(mongo: MongoServer, postgres: PostgresServer, directory: Path, *, each: int, seed: int) -> Figures:
    """Return the figures of one batch, on databases of its own."""
    with postgres.migrated_database() as source, mongo.database() as target:
        return figures_of_rows(target, source, directory, each=each, seed=seed)
