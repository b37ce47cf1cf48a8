"""Run summaries on MongoDB; projections of one key are serialised by the internal ``_version``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bson.int64 import Int64
from pymongo.errors import DuplicateKeyError

from twinstore.retrying import repeat
from twinstore.scheduler import queries
from twinstore.scheduler.catalog import RUN_SUMMARIES
from twinstore.scheduler.rules.missing import lost_race, required
from twinstore.scheduler.rules.run_summaries import check_expectation
from twinstore.scheduler.run_summaries import RunSummary
from twinstore.scope import id_argument, instant_argument
from twinstore.written import checked
from twinstore_mongo.codec import VERSION, next_version
from twinstore_mongo.errors import DRIVER
from twinstore_mongo.repository import MongoRepository, one
from twinstore_mongo.scheduler.codecs import SUMMARY_CODEC, summary_key
from twinstore_mongo.units import ATTEMPTS
from twinstore_mongo.writes import insert, replace

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from twinstore.errors import TwinstoreError
    from twinstore.paging import Page
    from twinstore_mongo.connection import Document

__all__ = ["MongoRunSummaryRepository"]


class MongoRunSummaryRepository(MongoRepository):
    """Implements :class:`~twinstore.scheduler.run_summaries.RunSummaryRepository`."""

    def get(self, tenant_id: str, schedule_id: str) -> RunSummary | None:
        """Return the summary of a schedule; see the Protocol."""
        tenant, schedule = self._admit(tenant_id), id_argument(schedule_id, "schedule_id")
        document = self._own(tenant, schedule)
        return None if document is None else SUMMARY_CODEC.decode(document)

    def get_required(self, tenant_id: str, schedule_id: str) -> RunSummary:
        """Return the summary of a schedule; see the Protocol."""
        found = self.get(tenant_id, schedule_id)
        return required(found, RUN_SUMMARIES, summary_key(tenant_id.strip(), schedule_id.strip()), DRIVER)

    def list(self, tenant_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[RunSummary]:
        """Return a page of summaries; see the Protocol."""
        tenant = self._admit(tenant_id)
        return self._page(SUMMARY_CODEC, queries.run_summaries(tenant, limit, page_token))

    def upsert(self, summary: RunSummary, *, expected_updated_at: datetime | None = None) -> RunSummary:
        """Insert or replace a summary; see the Protocol."""
        summary = self._model(summary, RunSummary, "summary")
        self._admit(summary.tenant_id)
        if expected_updated_at is None:
            return self._overwrite(summary)
        expected = instant_argument(expected_updated_at, "expected_updated_at")

        def change(stored: RunSummary | None) -> RunSummary:
            check_expectation(stored, summary, expected)
            return summary

        self._change(summary.tenant_id, summary.schedule_id, change)
        return summary

    def modify(
        self, tenant_id: str, schedule_id: str, change: Callable[[RunSummary | None], RunSummary | None]
    ) -> RunSummary | None:
        """Read, change and write one summary as one step; see the Protocol."""
        tenant, schedule = self._admit(tenant_id), id_argument(schedule_id, "schedule_id")
        rule = checked(change, RUN_SUMMARIES, tenant, (tenant, schedule), RunSummary)
        return self._change(tenant, schedule, rule)

    def _change(
        self, tenant: str, schedule: str, change: Callable[[RunSummary | None], RunSummary | None]
    ) -> RunSummary | None:
        attempts = 1 if self._unit.in_transaction else ATTEMPTS
        self._unit.check_writable()
        return repeat(lambda: self._compare_and_set(tenant, schedule, change), attempts=attempts)

    def _compare_and_set(
        self, tenant: str, schedule: str, change: Callable[[RunSummary | None], RunSummary | None]
    ) -> RunSummary | None:
        document = self._own(tenant, schedule)
        stored = None if document is None else SUMMARY_CODEC.decode(document)
        changed = change(stored)
        if changed is None:
            return stored
        self._write(document, changed)
        return changed

    def _write(self, found: Document | None, summary: RunSummary) -> None:
        """Write the summary if nobody else did since it was read."""
        key = summary_key(summary.tenant_id, summary.schedule_id)
        if found is None:
            document = SUMMARY_CODEC.encode(summary, key, {VERSION: Int64(1)})
            insert(self._unit, RUN_SUMMARIES, document, lambda _: self._lost(key))
            return
        version = found.get(VERSION)
        document = SUMMARY_CODEC.encode(summary, found["_id"], {VERSION: next_version(version)})
        condition = {"_id": found["_id"], "tenantId": summary.tenant_id, VERSION: version}
        if not replace(self._unit, RUN_SUMMARIES, condition, document, lambda _: self._lost(key)):
            raise self._lost(key)

    def _overwrite(self, summary: RunSummary) -> RunSummary:
        """Write whatever is stored, in one round trip where the server can count versions by itself."""
        if not self._unit.store.complete:
            self._change(summary.tenant_id, summary.schedule_id, lambda _: summary)
            return summary
        attempts = 1 if self._unit.in_transaction else ATTEMPTS
        repeat(lambda: self._replace_with(summary), attempts=attempts)
        return summary

    def _replace_with(self, summary: RunSummary) -> None:
        key = summary_key(summary.tenant_id, summary.schedule_id)
        condition = {"tenantId": summary.tenant_id, "scheduleId": summary.schedule_id}
        with self._unit.writing(RUN_SUMMARIES, key):
            collection = self._unit.collection(RUN_SUMMARIES)
            try:
                collection.update_one(
                    condition, replacement(summary, key), upsert=True, session=self._unit.session
                )
            except DuplicateKeyError as error:  # two first writes met
                raise self._lost(key) from error

    def _lost(self, key: str) -> TwinstoreError:
        return lost_race(RUN_SUMMARIES, key, DRIVER)

    def _own(self, tenant: str, schedule: str) -> Document | None:
        condition = {"tenantId": tenant, "scheduleId": schedule}
        return one(self._unit, RUN_SUMMARIES, condition, summary_key(tenant, schedule))


def replacement(summary: RunSummary, key: str) -> list[Document]:
    """Return the update that puts a summary in place of the whole document and keeps its internal id."""
    document = SUMMARY_CODEC.encode(summary, key)
    del document["_id"]
    parts: list[Document] = [
        {"_id": {"$ifNull": ["$_id", {"$literal": key}]}},
        {"$literal": document},
        {VERSION: {"$add": [{"$ifNull": [f"${VERSION}", Int64(0)]}, Int64(1)]}},
    ]
    return [{"$replaceWith": {"$mergeObjects": parts}}]
