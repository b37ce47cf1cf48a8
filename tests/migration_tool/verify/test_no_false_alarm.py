"""Valid documents of every entity, copied there and back: none is different, and nothing was normalised.

What one draws by hypothesis is slow, so a pool of drawn models is recombined field by field; a combination
that breaks a rule between fields is left as it was drawn.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

import pydantic
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.migration_tool.copy.test_between_servers import opened
from tests.migration_tool.verify.test_corruptions import merged_settings
from tests.support.copies import COPIED, numbered_row
from twinstore.bulk.port import Record
from twinstore.catalog.tenancy import Tenant
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.copies import Pair
    from tests.support.databases import MongoDatabase, PostgresDatabase
    from twinstore.bulk.port import BulkPort
    from twinstore.catalog.entity import Entity
    from twinstore.models.canonical import CanonicalModel
    from twinstore.testing.examples import Example

SEED: Final = 20_251_026
TENANTS: Final = ("acme", "globex", "initech", "Umbrella", "zürich")
BATCH: Final = 1000
DOCUMENTS: Final = 50
LONG_DOCUMENTS: Final = 100_000
# Models that are drawn for a number of documents, for all tenants together: one for each of them.
POOL: Final = 5
LONG_POOL: Final = 5000


def drawn(example: Example, tenant: str, number: int) -> list[CanonicalModel]:
    """Return this many different models of a tenant."""
    pool: list[CanonicalModel] = []
    if example.drawn is None:
        return [example.small(tenant, "drawn")]
    bounded = settings(
        max_examples=number,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )

    @bounded
    @given(example.drawn(tenant, "drawn"))
    def draw(model: CanonicalModel) -> None:
        pool.append(model)

    draw()
    return pool


def recombined(dice: random.Random, pool: list[CanonicalModel]) -> CanonicalModel:
    """Return a model of the pool with some fields of another one, where the rules allow it."""
    one, other = dice.choice(pool), dice.choice(pool)
    fields = type(one).model_fields
    chosen = {name: getattr(other, name) for name in fields if dice.random() < 0.3}  # a third
    try:
        return one.evolve(**chosen)
    except pydantic.ValidationError:
        return one


def records(entity: Entity, number: int) -> Iterator[list[Record]]:
    """Yield that many records in batches; the same for the same number."""
    example = SCHEDULER_EXAMPLES.of(entity)
    dice = random.Random(f"{SEED} {entity.name}")  # for tests
    pool = POOL if number == DOCUMENTS else LONG_POOL
    pools = {tenant: drawn(example, tenant, pool // len(TENANTS)) for tenant in TENANTS}
    batch: list[Record] = []
    for index in range(number):
        tenant = TENANTS[index % len(TENANTS)]
        row = numbered_row(example, recombined(dice, pools[tenant]), tenant, index)
        key = entity.key_of(row.model, row.storage)
        batch.append(Record(key, Tenant(tenant), row.model, row.storage))
        if len(batch) == BATCH:
            yield sorted(batch, key=lambda record: record.key or ())
            batch = []
    if batch:
        yield sorted(batch, key=lambda record: record.key or ())


def load(port: BulkPort, number: int) -> None:
    """Write this many records of every entity that is copied."""
    for entity in COPIED:
        for batch in records(entity, number):
            with port.writer(entity) as writer:
                writer.write(batch)
                outcome = writer.flush()
                writer.commit()
            assert sum(outcome.written.values()) == len(batch), outcome.rejected[:1]


@pytest.fixture
def both(empty_mongo_database: MongoDatabase, postgres_database: PostgresDatabase) -> dict[str, object]:
    """Return settings of two servers on which nothing expires."""
    merged = merged_settings(empty_mongo_database, postgres_database)
    merged["Scheduler"] = {"Storage": {"RunRetentionDays": 0, "ImpactRetentionDays": 0}}
    return merged


def assert_equal(pair: Pair, number: int, *, written: bool) -> None:
    """Copy and compare; every document is equal without an equivalence."""
    result = pair.copy(jobs=2, range_size=5000, as_of=None)
    counted = "written" if written else "unchanged"
    assert (result.exit, result.totals.all()[counted]) == (Exit.OK, number * len(COPIED))
    report = pair.verify(jobs=2, range_size=10_000, as_of=None)
    assert (report.verdict, report.reasons) == ("PASS", ())
    assert (report.documents_equal, report.equivalences) == (number * len(COPIED), ())


def test_valid_documents_are_equal_there_and_back(
    both: dict[str, object], tmp_path: Path, *, long_form: bool
) -> None:
    number = LONG_DOCUMENTS if long_form else DOCUMENTS
    with opened(both, "mongo to postgres", tmp_path / "there") as there:
        load(there.source.bulk, number)
        assert_equal(there, number, written=True)
    with opened(both, "postgres to mongo", tmp_path / "back") as back:
        # Every byte came back: a copy into where they are from finds nothing to write.
        assert_equal(back, number, written=False)
