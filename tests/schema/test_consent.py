"""What a migration would let MongoDB remove or refuse is counted before, and needs consent by name."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest

import twinstore
from tests.schema.test_mongo_migrations import opened
from tests.support.databases import MONGO_STEPS as STEPS
from tests.support.foreign import Document, fill_with_pymongo, foreign_runs
from twinstore import aio
from twinstore.errors import ConsentRequiredError, Effect, EffectKind, MigrationError, ValidationError
from twinstore.migrations.migration import COUNTED_ROWS, Consent, consent_required, without_consent
from twinstore.scheduler.catalog import SCHEDULER
from twinstore_memory.initializer import MemoryInitializer
from twinstore_mongo.schema.comparison import Schema

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from pymongo.database import Database

    from tests.support.databases import MongoDatabase
    from twinstore.migrations.migration import MigrationReport

DAY: Final = timedelta(days=1)
RUN_AGE = "ttl_finishedAt"


def ended(days: float) -> datetime:
    """Return an instant that many days ago by the clock that retention goes by."""
    return datetime.now(UTC).replace(microsecond=0) - days * DAY


def plant_runs(database: Database[Document], tenant: str, count: int, days: float) -> None:
    """Insert finished runs by hand."""
    database["runs"].insert_many(foreign_runs(tenant, count, ended=ended(days)))


def ttl(rows: int, name: str = "runs") -> Effect:
    return Effect(kind=EffectKind.TTL, name=name, rows=rows)


def validator(rows: int, name: str = "runs", *, more: bool = False) -> Effect:
    return Effect(kind=EffectKind.VALIDATOR, name=name, rows=rows, more=more)


def ages(database: Database[Document]) -> list[object]:
    """Return the ages of every index of every collection, but that of the logs, which follows the runs."""
    return [
        index["expireAfterSeconds"]
        for name in database.list_collection_names()
        if name != "execution_logs"
        for index in database[name].list_indexes()
        if "expireAfterSeconds" in index
    ]


def validated(database: Database[Document]) -> list[str]:
    return [item["name"] for item in database.list_collections() if "validator" in item.get("options", {})]


def test_without_consent_only_plain_indexes_are_made(
    empty_mongo_database: MongoDatabase, database: Database[Document]
) -> None:
    plant_runs(database, "acme", 5, days=400)
    database["runs"].insert_many({"_id": f"odd-{number}"} for number in range(3))
    content = list(database["runs"].find())
    with opened(empty_mongo_database) as storage:
        assert storage.initializer.effects() == (ttl(5), validator(3))
        with pytest.raises(ConsentRequiredError) as caught:
            storage.initializer.ensure_migrations()
        assert caught.value.effects == (ttl(5), validator(3))
        assert isinstance(caught.value, MigrationError)
        for part in (
            "remove 5 rows of runs at once",
            "refuse the next write of 3 rows of runs",
            "Plain indexes were created; nothing else was changed.",
            "migrate run --module scheduler --backend Mongo --accept-ttl runs=5 --accept-validator runs=3`",
        ):
            assert part in caught.value.message
        assert {"ix_tenantId_createdAt__id", RUN_AGE} <= set(database["runs"].index_information())
        assert "ux_tenantId_scheduleId" in database["run_summaries"].index_information()
        # Other programs may write to any of these collections, even to the empty ones.
        assert (ages(database), validated(database)) == ([], [])
        assert all(status.applied_at is None for status in storage.initializer.status())
        with pytest.raises(MigrationError, match="pending"):
            storage.check_ready()
    assert list(database["runs"].find()) == content


def test_with_consent_to_each_effect_everything_is_applied(
    empty_mongo_database: MongoDatabase, database: Database[Document]
) -> None:
    plant_runs(database, "acme", 5, days=400)
    database["runs"].insert_one({"_id": "odd"})
    accept = {Consent(EffectKind.TTL, "runs", 5), Consent(EffectKind.VALIDATOR, "runs", 1)}
    with opened(empty_mongo_database) as storage:
        for part in accept:
            with pytest.raises(ConsentRequiredError):
                storage.initializer.ensure_migrations(accept={part})
        report = storage.initializer.ensure_migrations(accept=accept)
        assert report.applied == STEPS
        assert "validator of runs set" in report.changes
        assert f"index runs.{RUN_AGE} now removes rows after 15552000 s" in report.changes
        assert storage.initializer.verify() == ()
        assert storage.initializer.effects() == ()
        storage.check_ready()
        assert storage.initializer.ensure_migrations().changes == ()
    assert ages(database) == [15_552_000]
    assert len(validated(database)) == len(SCHEDULER.entities)


@pytest.mark.parametrize("kind", [EffectKind.TTL, EffectKind.VALIDATOR])
def test_a_count_that_has_grown_since_it_was_accepted_stops_again(
    empty_mongo_database: MongoDatabase, database: Database[Document], kind: EffectKind
) -> None:
    def plant(tenant: str) -> None:
        if kind is EffectKind.TTL:
            plant_runs(database, tenant, 2, days=400)
        else:
            database["runs"].insert_many({"_id": f"{tenant}-{number}"} for number in range(2))

    plant("acme")
    with opened(empty_mongo_database) as storage:
        (effect,) = storage.initializer.effects()
        assert effect.rows == 2
        accept = {Consent(kind, "runs", effect.rows)}
        plant("umbrella")
        with pytest.raises(ConsentRequiredError) as caught:
            storage.initializer.ensure_migrations(accept=accept)
        assert [item.rows for item in caught.value.effects] == [4]
        assert (ages(database), validated(database)) == ([], [])
        # Fewer than were agreed to need no new decision.
        database["runs"].delete_many({"_id": {"$regex": "^acme"}})
        assert storage.initializer.ensure_migrations(accept=accept).applied == STEPS


def test_rows_that_come_while_the_indexes_are_built_are_counted_too(
    empty_mongo_database: MongoDatabase, database: Database[Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_runs(database, "acme", 2, days=400)
    with opened(empty_mongo_database) as storage:
        accept = {Consent(EffectKind.TTL, "runs", 2)}
        create = Schema.create

        def slow(self: Schema, collections: Any) -> None:  # noqa: ANN401  # as the original
            create(self, collections)
            if database["runs"].count_documents({}) == 2:
                plant_runs(database, "umbrella", 1, days=400)

        monkeypatch.setattr(Schema, "create", slow)
        with pytest.raises(ConsentRequiredError) as caught:
            storage.initializer.ensure_migrations(accept=accept)
        assert caught.value.effects == (ttl(3),)
        assert ages(database) == []


def test_only_what_is_new_is_counted_when_a_retention_is_shortened(
    empty_mongo_database: MongoDatabase, database: Database[Document]
) -> None:
    with opened(empty_mongo_database, RunRetentionDays=100) as storage:
        storage.initializer.ensure_migrations()
    for count, days in ((1, 120), (2, 80), (4, 40), (8, 5)):
        plant_runs(database, f"t{days}", count, days=days)
    with opened(empty_mongo_database, RunRetentionDays=30) as storage:
        # The one that is past the old age is due already, whatever is decided here.
        assert storage.initializer.effects() == (ttl(6),)
        with pytest.raises(ConsentRequiredError, match="remove 6 rows of runs at once"):
            storage.initializer.ensure_migrations()
        assert ages(database) == [100 * 86_400]
        storage.check_ready()
        storage.initializer.ensure_migrations(accept={Consent(EffectKind.TTL, "runs", 6)})
        assert ages(database) == [30 * 86_400]
    for days in (60, 0):
        with opened(empty_mongo_database, RunRetentionDays=days) as storage:
            assert storage.initializer.effects() == ()
            storage.initializer.ensure_migrations()
    assert ages(database) == []


def test_a_retention_that_is_switched_on_late_is_counted_for_each_collection(
    empty_mongo_database: MongoDatabase, database: Database[Document]
) -> None:
    fill_with_pymongo(database)
    with opened(empty_mongo_database, RunRetentionDays=0) as storage:
        accept = {Consent(EffectKind.VALIDATOR, "run_summaries")}
        assert storage.initializer.ensure_migrations(accept=accept).applied == STEPS
    with opened(empty_mongo_database, ImpactRetentionDays=1, RunRetentionDays=180) as storage:
        assert storage.initializer.effects() == (ttl(2, "impact_snapshots"), ttl(10))
        with pytest.raises(ConsentRequiredError) as caught:
            storage.initializer.ensure_migrations(accept={Consent(EffectKind.TTL, "runs", 10)})
        assert caught.value.effects == (ttl(2, "impact_snapshots"),)
        assert ages(database) == []


def test_more_refused_rows_than_are_counted_need_a_consent_without_a_number(
    empty_mongo_database: MongoDatabase, database: Database[Document]
) -> None:
    rows: list[Document] = [{"_id": str(number)} for number in range(COUNTED_ROWS + 5)]
    database["audit"].insert_many(rows)
    numbered = {Consent(EffectKind.VALIDATOR, "audit", 10**9)}
    with opened(empty_mongo_database) as storage:
        assert storage.initializer.effects() == (validator(COUNTED_ROWS, "audit", more=True),)
        with pytest.raises(
            ConsentRequiredError, match=r"of more than 10,000 rows of audit.*--accept-validator audit`"
        ):
            storage.initializer.ensure_migrations(accept=numbered)
        database["audit"].delete_one({"_id": "0"})
        report = storage.initializer.ensure_migrations(accept={Consent(EffectKind.VALIDATOR, "audit")})
        assert report.applied == STEPS


def test_without_validators_nothing_is_refused_and_nothing_asked(
    empty_mongo_database: MongoDatabase, database: Database[Document]
) -> None:
    database["audit"].insert_one({"_id": "odd"})
    config: Document = empty_mongo_database.config
    config["Persistence"]["Mongo"]["Validators"] = False
    with twinstore.add_scheduler_storage(config) as storage:
        assert storage.initializer.effects() == ()
        assert storage.initializer.ensure_migrations().applied == STEPS
        assert storage.initializer.verify() == ()
    assert validated(database) == []


def test_a_separate_collation_is_named_because_tenants_are_not_distinguished(
    empty_mongo_database: MongoDatabase, database: Database[Document]
) -> None:
    database.create_collection("runs", collation={"locale": "en", "strength": 2})
    with opened(empty_mongo_database) as storage:
        storage.initializer.ensure_migrations()
        assert storage.initializer.ensure_migrations().changes == ()
        (problem,) = storage.initializer.verify()
        assert problem.startswith("The collection runs compares texts by its own collation (en)")
        with pytest.raises(MigrationError, match="its own collation"):
            storage.check_ready()


def effect(
    kind: EffectKind = EffectKind.TTL, name: str = "runs", rows: int = 5, *, more: bool = False
) -> Effect:
    return Effect(kind=kind, name=name, rows=rows, more=more)


@pytest.mark.parametrize(
    ("consent", "covered", "open_"),
    [
        (Consent(EffectKind.TTL, "runs", 5), effect(), effect(rows=6)),
        (Consent(EffectKind.TTL, "runs", 5), effect(rows=4), effect(name="audit")),
        (Consent(EffectKind.TTL, "runs", 5), effect(), effect(EffectKind.VALIDATOR)),
        (Consent(EffectKind.VALIDATOR, "runs"), effect(EffectKind.VALIDATOR, more=True), effect()),
        (Consent(EffectKind.RLS, "runs"), effect(EffectKind.RLS, rows=10**9), effect(EffectKind.VALIDATOR)),
        (Consent(EffectKind.RLS, "runs", 9), effect(EffectKind.RLS), effect(EffectKind.RLS, more=True)),
    ],
)
def test_a_consent_covers_one_kind_one_name_and_no_more_rows(
    consent: Consent, covered: Effect, open_: Effect
) -> None:
    assert without_consent([covered], {consent}) == ()
    assert without_consent([covered, open_], {consent}) == (open_,)
    assert without_consent([covered, open_], frozenset()) == (covered, open_)


def test_a_consent_without_a_number_is_refused() -> None:
    with pytest.raises(ValidationError, match="A consent to remove rows of runs must say how many"):
        Consent(EffectKind.TTL, "runs")


@pytest.mark.parametrize(
    ("item", "text", "option"),
    [
        (effect(rows=1), "remove 1 row of runs at once", "--accept-ttl runs=1"),
        (effect(rows=12345), "remove 12,345 rows of runs at once", "--accept-ttl runs=12345"),
        (
            effect(EffectKind.VALIDATOR, rows=10_000, more=True),
            "refuse the next write of more than 10,000 rows of runs",
            "--accept-validator runs",
        ),
        (
            effect(EffectKind.RLS),
            "hide 5 rows of runs from clients that do not set app.tenant_id",
            "--accept-rls runs=5",
        ),
    ],
)
def test_an_effect_says_what_the_server_would_do_and_how_to_agree(
    item: Effect, text: str, option: str
) -> None:
    assert (item.text, item.option) == (text, option)
    message = consent_required((item,), "Nothing was changed.", module="scheduler", driver="Mongo").message
    assert message == (
        f"Migrating scheduler would let Mongo {text}. Nothing was changed. If that is right, run `twinstore "
        f"migrate run --module scheduler --backend Mongo {option}`, or call "
        "ensure_migrations(accept={Consent(...)}) with the same."
    )


def test_the_facade_for_asyncio_hands_the_consent_on(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, Any]] = []

    def refuse(
        _: MemoryInitializer, *, release: bool = False, accept: AbstractSet[Consent] = frozenset()
    ) -> MigrationReport:
        given.append({"release": release, "accept": accept})
        raise consent_required((effect(),), "", module="scheduler", driver="Memory")

    monkeypatch.setattr(MemoryInitializer, "ensure_migrations", refuse)
    accept = {Consent(EffectKind.TTL, "runs", 4)}

    async def work() -> None:
        async with aio.open_storage({"Persistence": {"Scheduler": "Memory"}}) as storage:
            with pytest.raises(ConsentRequiredError):
                await storage.scheduler.ensure_migrations(release=True, accept=accept)

    asyncio.run(work())
    assert given == [{"release": True, "accept": accept}]
