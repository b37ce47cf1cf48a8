"""Any document or row that a server holds is copied or quarantined with its bytes; none stops a copy."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import InvalidBSON
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.errors import BulkWriteError

from tests.migration_tool.copy.test_between_servers import opened
from tests.support.copies import server_settings
from tests.support.hostile_documents import ENTITIES, hostile_documents
from tests.support.hostile_rows import drop_rules, good_lines, hostile_rows, insert_hostile_rows, stored_lines
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.support.copies import Pair
    from tests.support.databases import MongoDatabase, MongoServer, PostgresDatabase, PostgresServer
    from twinstore.catalog.entity import Entity
    from twinstore_backfill.copy.report import CopyResult
    from twinstore_backfill.report.model import ParityReport

WRONG: Final = ("missing", "extra", "different", "stale", "undecodable")
OUTCOMES: Final = ("written", "unchanged", "conflicts", "quarantined", "expired")
# Rules of the models without a name; with them no report could show that nothing is lost.
UNNAMED: Final = frozenset({"normalised", "key_collision"})
# The parts of a reason that belong to one row: quoted text and numbers.
OWN: Final = re.compile(r"'(?:[^']*)'|\d+")
SHOWN: Final = 40


@dataclass(slots=True)
class Figures:
    """What became of hostile rows.

    Attributes:
        tried: rows in the source.
        copied: rows that the verification found as a copy stores them.
        normalised: of these, by kind, rows that the source holds in another form; a row may be of many kinds.
        quarantined: rows that were quarantined, by reason.
    """

    tried: int = 0
    copied: int = 0
    normalised: Counter[str] = field(default_factory=Counter[str])
    quarantined: Counter[str] = field(default_factory=Counter[str])

    def text(self) -> str:
        """Return the figures for people."""
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(self.normalised.items()))
        reasons = [f"  {count:9,} {reason}" for reason, count in self.quarantined.most_common(SHOWN)]
        head = (
            f"tried {self.tried:,}; copied {self.copied:,}, of these normalised: {kinds or 'none'}; "
            f"quarantined {self.quarantined.total():,}"
        )
        return "\n".join((head, f"quarantined, {len(self.quarantined)} reasons:", *reasons))


def judge(pair: Pair, stored: Mapping[str, Counter[bytes]], range_size: int) -> Figures:
    """Copy and verify, and check what became of every row.

    Args:
        pair: the open stores.
        stored: the bytes of every row of the source, by entity.
        range_size: rows of one range.
    """
    figures = Figures(tried=sum(rows.total() for rows in stored.values()))
    result = pair.copy(range_size=range_size)
    report = pair.verify(range_size=range_size)
    judge_copy(result, stored)
    lines = list(quarantine_lines(pair.directory / "quarantine.ndjson"))
    assert len(lines) == result.totals.all()["quarantined"]
    for name, rows in stored.items():
        kept = Counter(line.original for line in lines if line.entity == name)
        assert kept <= rows, f"{name}: bytes in quarantine that no row of the source has"
    figures.quarantined.update(OWN.sub("…", line.reason) for line in lines)
    judge_report(report, result)
    figures.copied = report.documents_equal + sum(entity.counts.unproved for entity in report.entities)
    figures.normalised.update({item.name: item.documents for item in report.equivalences})
    assert figures.copied + figures.quarantined.total() == figures.tried, figures.text()
    return figures


def judge_copy(result: CopyResult, stored: Mapping[str, Counter[bytes]]) -> None:
    """Check that the copy ended, and accounts for every row."""
    assert result.complete, result.failed.shown
    assert result.exit in {Exit.OK, Exit.INCONCLUSIVE}
    for name, rows in stored.items():
        totals = result.totals.of(name)
        assert totals["read"] == sum(totals[outcome] for outcome in OUTCOMES) == rows.total(), name


def judge_report(report: ParityReport, result: CopyResult) -> None:
    """Check that the verification agrees with the copy, row by row, and with the target."""
    for entity in report.entities:
        counts = entity.counts.model_dump()
        wrong = {name: (counts[name], getattr(entity, name).shown[:5]) for name in WRONG if counts[name]}
        assert not wrong, (entity.entity, wrong)
        totals = result.totals.of(entity.entity)
        assert counts["quarantined"] == totals["quarantined"], entity.entity
        assert counts["equal"] + counts["unproved"] == totals["written"], entity.entity
    found = unnamed(report)
    assert not found, found
    assert report.verdict in {"PASS", "INCONCLUSIVE"}, report.reasons
    assert (report.verdict == "PASS") <= (result.totals.all()["quarantined"] == 0)


def unnamed(report: ParityReport) -> dict[str, list[str]]:
    """Return the kinds of normalising that have no name, with the first places where they were needed."""
    kinds = UNNAMED & {item.name for item in report.equivalences}
    rows = [row for entity in report.entities for row in entity.unproved.shown]
    return {kind: [path for row in rows for path in row.paths if f"({kind})" in path] for kind in kinds}


@dataclass(frozen=True, slots=True)
class KeptLine:
    """One line of the quarantine, with the bytes that it gives back."""

    entity: str
    reason: str
    original: bytes


def quarantine_lines(path: Path) -> Iterator[KeptLine]:
    """Yield the lines of a file."""
    with path.open("rb") as file:
        for line in map(json.loads, file):
            raw: dict[str, Any] = json.loads(line["raw"])
            content = base64.b64decode(raw["bson"] if "bson" in raw else raw["row"])
            yield KeptLine(line["entity"], line["reason"], content)


RANGE: Final = 1000
# For what the server says of documents that it refuses, and for their bytes.
TOLERANT: Final[CodecOptions[dict[str, Any]]] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_AUTO, unicode_decode_error_handler="replace"
)
RAW: Final = CodecOptions(document_class=RawBSONDocument)


def figures_of_documents(
    mongo: MongoDatabase, postgres: PostgresDatabase, directory: Path, *, each: int, seed: int
) -> Figures:
    """Plant documents of each entity, copy them to PostgreSQL, and verify.

    In every second batch the source has no index and no unique value of ours.
    """
    with opened(settings(mongo, postgres), "mongo to postgres", directory) as pair:
        with MongoClient[dict[str, Any]](mongo.url) as client:
            database = client[mongo.name]
            if seed % 2:
                for entity in ENTITIES:
                    database[entity.collection].drop_indexes()
            stored = {entity.name: planted(database, entity, each, seed) for entity in ENTITIES}
        return judge(pair, stored, range_size=RANGE)


def figures_of_rows(
    mongo: MongoDatabase, postgres: PostgresDatabase, directory: Path, *, each: int, seed: int
) -> Figures:
    """Plant rows of each entity, copy them to MongoDB, and verify."""
    with (
        opened(settings(mongo, postgres), "postgres to mongo", directory) as pair,
        psycopg.connect(postgres.superuser_url, autocommit=True) as connection,
    ):
        stored: dict[str, Counter[bytes]] = {}
        for entity in ENTITIES:
            good = good_lines(connection, pair.source.bulk, entity, each)
            drop_rules(connection, entity)
            insert_hostile_rows(connection, entity, hostile_rows(entity, good, seed))
            stored[entity.name] = Counter(stored_lines(connection, entity))
        return judge(pair, stored, range_size=RANGE)


def settings(mongo: MongoDatabase, postgres: PostgresDatabase) -> dict[str, object]:
    """Return settings that name both servers; nothing expires."""
    return server_settings(mongo, postgres, ImpactRetentionDays=0)


def planted(database: Any, entity: Entity, count: int, seed: int) -> Counter[bytes]:  # noqa: ANN401  # of raw documents
    """Insert hostile documents past the validators; return the bytes of those that the server took."""
    collection = database.get_collection(entity.collection, codec_options=TOLERANT)
    documents = [RawBSONDocument(raw) for raw in hostile_documents(entity, count, seed)]
    # An _id of a type that the server does not take, or a unique value twice, which the server repeats in its
    # answer in a form that the client may be unable to read.
    with suppress(BulkWriteError, InvalidBSON):
        collection.insert_many(documents, ordered=False, bypass_document_validation=True)
    found = collection.with_options(codec_options=RAW).find()
    return Counter(bytes(document.raw) for document in found)


DOCUMENTS, ROWS = "MongoDB to PostgreSQL", "PostgreSQL to MongoDB"
DIRECTIONS: Final = (DOCUMENTS, ROWS)
# Of each entity; one copy and one verification each, so that little is spent on starting them.
# In the full form half a million in each direction, in batches that memory does not notice.
BATCHES: Final = ((1, 100), *(pytest.param(seed, 1260, marks=pytest.mark.long) for seed in range(100, 140)))


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("seed", "each"), BATCHES)
def test_hostile_rows_are_copied_or_quarantined(  # noqa: PLR0917  # fixtures and parameters
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
