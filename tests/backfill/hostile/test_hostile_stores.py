"""Any document or row that a server holds is copied or kept back with its bytes; none stops anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.backfill.hostile.documents import ENTITIES
from tests.backfill.hostile.judging import Figures
from tests.backfill.hostile.planting import figures_of_documents, figures_of_rows, tell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.databases import MongoServer, PostgresServer

DOCUMENTS, ROWS = "MongoDB to PostgreSQL", "PostgreSQL to MongoDB"
DIRECTIONS: Final = (DOCUMENTS, ROWS)
# Of each entity; one copy and one verification each, so that little is spent on starting them.
BATCHES: Final = ((1, 100), pytest.param(2, 500, marks=pytest.mark.long))
# Half a million, in batches that memory does not notice.
EACH_OF_LONG: Final = 1260
SEEDS_OF_LONG: Final = range(100, 140)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("seed", "each"), BATCHES)
def test_hundreds_are_copied_or_kept_back(  # noqa: PLR0917  # fixtures and parameters
    seed: int,
    each: int,
    direction: str,
    mongo_server: MongoServer,
    postgres_server: PostgresServer,
    tmp_path: Path,
) -> None:
    figures = run(direction, mongo_server, postgres_server, tmp_path, each=each, seed=seed)
    # Some documents are none that the server takes; every row is one.
    assert figures.tried > len(ENTITIES) * each * (0.9 if direction == DOCUMENTS else 1) - 1
    # A generator of which the models took nothing, or all, would try nothing.
    assert figures.copied > figures.tried / 10
    assert figures.quarantined.total() > figures.tried / 10


@pytest.fixture(scope="module")
def whole(request: pytest.FixtureRequest) -> Iterator[dict[str, Figures]]:
    """Collect the figures of all batches, and tell them at the end."""
    figures = {direction: Figures() for direction in DIRECTIONS}
    yield figures
    for direction, found in figures.items():
        if found.tried:
            tell(request.config, f"{direction}: {found.text()}")


@pytest.mark.long
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("seed", SEEDS_OF_LONG)
def test_half_a_million_are_copied_or_kept_back(  # noqa: PLR0917  # fixtures and parameters
    seed: int,
    direction: str,
    mongo_server: MongoServer,
    postgres_server: PostgresServer,
    tmp_path: Path,
    whole: dict[str, Figures],
) -> None:
    figures = run(direction, mongo_server, postgres_server, tmp_path, each=EACH_OF_LONG, seed=seed)
    whole[direction].add(figures)


def run(  # what both directions need
    direction: str, mongo: MongoServer, postgres: PostgresServer, directory: Path, *, each: int, seed: int
) -> Figures:
    """Return the figures of one batch, on databases of its own."""
    with mongo.database() as documents, postgres.migrated_database() as rows:
        figures_of = figures_of_documents if direction == DOCUMENTS else figures_of_rows
        return figures_of(documents, rows, directory, each=each, seed=seed)
