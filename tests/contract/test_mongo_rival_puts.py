"""A refused insert tells a rival's insert of the same row from a unique value that another row has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import twinstore
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import Tenant
from twinstore.scheduler.catalog import SCHEDULES
from twinstore.testing.scheduler.builders import make_schedule
from twinstore_mongo.access.changing import is_own_value
from twinstore_mongo.backend import MongoBackend

if TYPE_CHECKING:
    from tests.databases import MongoDatabase

NAMES: Final = SCHEDULES.unique("tenant_name")
SCOPE: Final = Tenant("acme")


def test_the_holder_of_a_unique_value_tells_whether_it_is_the_row_itself(
    mongo_database: MongoDatabase,
) -> None:
    with twinstore.open_storage(mongo_database.config) as storage:
        storage.scheduler.schedules.upsert(make_schedule("acme", "first", name="taken"))
        backend = storage.scheduler._backend  # noqa: SLF001  # the driver below the rules
        assert isinstance(backend, MongoBackend)
        context = backend.unbound().context  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]  # of the driver
        cases = {("first", "taken"): True, ("second", "taken"): False, ("first", "free"): False}
        for (key, name), own in cases.items():
            row = Row(make_schedule("acme", key, name=name))
            assert is_own_value(context, row, SCHEDULES, SCOPE, NAMES) is own, (key, name)
