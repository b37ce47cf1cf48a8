"""The work done by pymongo alone: the commands and concerns of the library, raw documents as the answer.

It makes no checks and consults no rules; the results of rules are computed in advance.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from random import getrandbits, shuffle
from time import monotonic, perf_counter, sleep
from typing import TYPE_CHECKING, Any, Final

from bson.int64 import Int64
from pymongo import InsertOne, MongoClient, ReplaceOne, ReturnDocument
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern
from typing_extensions import override

from benchmarks.peers.contender import Contender, Endpoints, Kind, Step, Work
from benchmarks.peers.stock import TENANT, request
from twinstore.catalog.row import Row
from twinstore.scheduler import Run, RunState, RunTrigger
from twinstore.scheduler.catalog import POLICY_JOBS, RUNS
from twinstore.scheduler.policy_service import job_of
from twinstore.scheduler.repositories.locks import backoff_delays
from twinstore_mongo.mapping.codec import codec_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo.client_session import ClientSession

__all__ = ["BareMongo"]

Document = dict[str, Any]

LEASE: Final = timedelta(minutes=1)
DAY: Final = timedelta(days=1)
PAGE: Final = 100
ORDER: Final = [("_priorityRank", -1), ("availableAt", 1), ("createdAt", 1), ("_id", 1)]
DUE_ORDER: Final = [("nextFireAt", 1), ("tenantId", 1), ("_id", 1)]
NAME: Final = "(name)"
KEY: Final = "bench"
TIMEOUT: Final = 300.0
RAN: Final = Run(
    id=NAME,
    tenant_id=TENANT,
    schedule_id=NAME,
    trigger=RunTrigger.CRON,
    state=RunState.PLANNING,
    created_at=datetime.now(UTC),
)


class BareMongo(Contender):
    """A worker that is written against pymongo."""

    def __init__(self, endpoints: Endpoints, worker: str) -> None:
        self._client: MongoClient[Document] = MongoClient(endpoints.mongo_url)
        majority = ReadConcern("majority")
        self._database = self._client.get_database(
            endpoints.mongo_database, read_concern=majority, write_concern=WriteConcern("majority")
        )
        self._jobs = self._database["policy_jobs"]
        self._worker = worker
        self._due: list[Document] = []
        self._numbers = count()
        self._job: Document = codec_of(POLICY_JOBS).encode(Row(job_of(request(0, NAME), datetime.now(UTC))))
        self._run: Document = codec_of(RUNS).encode(Row(RAN))

    @override
    def close(self) -> None:
        self._client.close()

    @override
    def step(self, work: Work) -> Step:
        self.waited = None
        self._due = []
        if work.kind is Kind.LOCK:
            new = {"$setOnInsert": {"free": True, "fence": 0}}
            self._database["bare_leases"].update_one({"_id": KEY}, new, upsert=True)
        steps: dict[Kind, Callable[[int], int]] = {
            Kind.CLAIM: lambda size: len(self._claimed(size)),
            Kind.PROCESS: self._process,
            Kind.LIFE: self._life,
            Kind.FIRE: lambda _: self._fire(list.reverse),
            Kind.FIRE_SPREAD: lambda _: self._fire(shuffle),
            Kind.LOCK: self._lock,
        }
        chosen, size = steps[work.kind], work.size
        return lambda: chosen(size)

    def _claimed(self, size: int) -> list[Document]:
        now = datetime.now(UTC)
        due = {"status": "pending", "availableAt": {"$lte": now}, "attemptCount": {"$lt": 2**31 - 1}}
        sets = {
            "status": "dispatching",
            "leaseOwner": self._worker,
            "leaseExpiresAt": now + LEASE,
            "lastAttemptAt": now,
            "updatedAt": now,
        }
        if size == 1:
            change = {"$set": sets, "$inc": {"attemptCount": 1, "_version": Int64(1)}}
            after = ReturnDocument.AFTER
            found = self._jobs.find_one_and_update(due, change, sort=ORDER, return_document=after)
            return [] if found is None else [found]
        keys = [row["_id"] for row in self._jobs.find(due, {"_id": 1}).sort(ORDER).limit(size)]
        version = Int64((1 << 61) | getrandbits(61))
        change = {"$set": {**sets, "_version": version}, "$inc": {"attemptCount": 1}}
        self._jobs.update_many({"_id": {"$in": keys}, **due}, change)
        return list(self._jobs.find({"_id": {"$in": keys}, "_version": version}))

    def _process(self, size: int) -> int:
        keys = [job["_id"] for job in self._claimed(size)]
        now = datetime.now(UTC)
        if not keys:
            return 0
        self._moved(keys, {"status": "submitted", "submittedAt": now, "updatedAt": now})
        return self._moved(keys, {"status": "completed", "completedAt": now, "updatedAt": now})

    def _moved(self, keys: list[object], new_values: Document) -> int:
        """Read some jobs, then replace each unless it changed."""
        changes: list[ReplaceOne[Document]] = []
        for job in self._jobs.find({"_id": {"$in": keys}}):
            after = {**job, **new_values, "_version": Int64(job["_version"] + 1)}
            after.pop("leaseOwner", None)
            after.pop("leaseExpiresAt", None)
            changes.append(ReplaceOne({"_id": job["_id"], "_version": job["_version"]}, after))
        return self._jobs.bulk_write(changes, ordered=False).modified_count

    def _life(self, size: int) -> int:
        name = f"{self._worker}-{next(self._numbers)}"
        self._jobs.insert_one({**self._job, "_id": name, "runId": name})
        return self._process(size)

    def _fire(self, arrange: Callable[[list[Any]], None]) -> int:
        now = datetime.now(UTC)
        if not self._due:
            due = {"enabled": True, "nextFireAt": {"$lte": now}}
            self._due = list(self._database["triggers"].find(due).sort(DUE_ORDER).limit(PAGE + 1))
            keys = [trigger["scheduleId"] for trigger in self._due]
            list(self._database["schedules"].find({"_id": {"$in": keys}}).sort("_id"))
            arrange(self._due)
        if not self._due:
            return 0
        named = {"tenantId": TENANT, "scheduleId": self._due.pop()["scheduleId"]}
        found = self._database["triggers"].find_one(named)
        if found is None or found["nextFireAt"] > now.replace(tzinfo=None):
            return 0
        with self._client.start_session() as session:
            try:
                with session.start_transaction(ReadConcern("snapshot"), WriteConcern("majority")):
                    return self._fired(session, named, found["nextFireAt"])
            except OperationFailure as error:
                if error.has_error_label("TransientTransactionError"):
                    return 0
                raise

    def _fired(self, session: ClientSession, named: Document, due: datetime) -> int:
        """Read all three documents, insert the run, replace the trigger."""
        key = named["scheduleId"]
        name = f"run:{TENANT}:{key}:{due:%Y%m%dT%H%M%SZ}"
        self._database["schedules"].find_one({"_id": key, "tenantId": TENANT}, session=session)
        trigger = self._database["triggers"].find_one(named, session=session)
        self._database["runs"].find_one({"_id": name, "tenantId": TENANT}, session=session)
        if trigger is None or trigger["nextFireAt"] != due:
            return 0
        run = {**self._run, "_id": name, "scheduleId": key}
        self._database["runs"].bulk_write([InsertOne(run)], session=session)
        after = {**trigger, "nextFireAt": datetime.now(UTC) + DAY, "lastFireAt": due, "lastRunId": name}
        after["fireCount"] += 1
        only = {"_id": trigger["_id"], "tenantId": TENANT}
        return self._database["triggers"].replace_one(only, after, session=session).modified_count

    def _lock(self, size: int) -> int:
        """Take a lease document, asking again as often as the library does."""
        leases = self._database["bare_leases"]
        began = perf_counter()
        change = {"$set": {"free": False}, "$inc": {"fence": 1}}
        for pause in backoff_delays(monotonic() + TIMEOUT):
            if pause:
                sleep(pause)
            if leases.find_one_and_update({"_id": KEY, "free": True}, change) is not None:
                break
        self.waited = perf_counter() - began
        leases.find_one_and_update({"_id": KEY}, {"$set": {"free": True}})
        return size
