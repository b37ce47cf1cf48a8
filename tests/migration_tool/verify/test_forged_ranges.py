"""No chosen rows deceive the digests of a run: their key is drawn for the run, and stays in its process."""

from __future__ import annotations

import base64
import logging
from concurrent.futures import ProcessPoolExecutor
from io import BytesIO
from multiprocessing import active_children, reduction
from pathlib import Path
from secrets import token_bytes
from typing import IO, TYPE_CHECKING, Any, Final

import psycopg
import pytest
from pymongo import MongoClient

from tests.migration_tool.copy.test_between_servers import opened
from tests.migration_tool.verify.forging import BAD, ROWS, forged_ranges, record
from tests.migration_tool.verify.test_digests import shares
from tests.support.copies import invoke, server_settings, write_config
from twinstore.bulk.rows import RangeDigests
from twinstore.catalog.row import Row
from twinstore.fast.digests import Scanner
from twinstore.fast.library import fast_path
from twinstore.scheduler.catalog import AUDIT
from twinstore_backfill.outcome import Exit
from twinstore_backfill.report.model import RangeShares
from twinstore_backfill.verify.digest_ranges import Proof
from twinstore_mongo.mapping.codec import codec_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Future

    from tests.support.copies import Pair
    from tests.support.databases import MongoDatabase, PostgresDatabase
    from twinstore.bulk.port import BulkPort

SET: Final = "UPDATE scheduler.audit SET message = CASE WHEN id = ANY(%s) THEN %s ELSE 'good' END"

pytestmark = pytest.mark.skipif(not fast_path().is_on, reason="the native library is off")


@pytest.fixture
def settings(empty_mongo_database: MongoDatabase, postgres_database: PostgresDatabase) -> dict[str, object]:
    """Return settings that name both servers."""
    return server_settings(postgres_database, empty_mongo_database)


@pytest.fixture
def config(settings: dict[str, object], tmp_path: Path) -> Path:
    return write_config(tmp_path / "config.json", settings)


@pytest.fixture
def rows() -> int:
    return ROWS


@pytest.fixture
def pair(
    settings: dict[str, object], empty_mongo_database: MongoDatabase, tmp_path: Path, rows: int
) -> Iterator[Pair]:
    """Return two stores that hold the same records, all of one owner."""
    with opened(settings, "mongo to postgres", tmp_path / "copy") as pair:
        codec = codec_of(AUDIT)
        records = (codec.encode(Row(record(number))) for number in range(rows))
        with MongoClient[Any](empty_mongo_database.url) as client:
            client[empty_mongo_database.name][AUDIT.collection].insert_many(records)
        pair.copy(range_size=ROWS + 1)
        yield pair


def digests_of(port: BulkPort, secret: bytes) -> RangeDigests:
    """Return the digests of all records of a store, as one range."""
    with port.view() as view:
        found = view.digests(AUDIT, [], secret=secret, accepts=bool)
    assert isinstance(found, RangeDigests)
    return found


def shown(found: RangeDigests) -> tuple[int, int, int]:
    """Return what reports show of the digests of the one owner."""
    (cell,) = found.cells.values()
    return cell.count, cell.xor, cell.sum


def set_bad(database: PostgresDatabase, ids: Iterable[str]) -> None:
    with psycopg.connect(database.superuser_url, autocommit=True) as connection:
        connection.execute(SET, [list(ids), BAD])


def test_ranges_that_are_forged_against_the_sum_fail(
    pair: Pair, postgres_database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As with so many owners that smaller ranges would take too much memory.
    monkeypatch.setattr("twinstore_backfill.verify.partition.ROWS_PER_DIGEST", ROWS + 1)
    options = {"entities": ("audit",), "range_size": ROWS + 1}
    first, *others = forged_ranges()
    assert others
    for ids in (*others, first):
        set_bad(postgres_database, ids)
        for secret in (bytes(16), token_bytes(16)):
            source, target = (digests_of(side.bulk, secret) for side in (pair.source, pair.target))
            assert shown(source) == shown(target), "run tests.migration_tool.verify.forging again"
            assert Proof(source, source).proves(0)
            # Sums of a product with the key would agree.
            assert not Proof(source, target).proves(0)
    report = pair.verify(**options)
    assert shares(report) == RangeShares(row_by_row=1)
    assert (report.verdict, report.exit_code, report.cutover_ready) == ("FAIL", Exit.DIFFERENT, False)
    (audit,) = report.entities
    assert (audit.counts.different, audit.counts.equal) == (len(first), ROWS - len(first))


def forms_of(secret: bytes) -> tuple[bytes, ...]:
    """Return how a secret may be written."""
    numbers = (int.from_bytes(secret, order) for order in ("little", "big"))
    texts = (secret.hex(), repr(secret), *(f"{number:d}" for number in numbers))
    return (secret, secret[::-1], base64.b64encode(secret).rstrip(b"="), *map(str.encode, texts))


class Watch:
    """Everything that child processes are given."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.seen: list[bytes] = []
        self.children = 0
        dump, dumps, submit = reduction.dump, reduction.ForkingPickler.dumps, ProcessPoolExecutor.submit

        def dumped(item: object, file: IO[bytes], protocol: int | None = None) -> None:
            copy = BytesIO()
            dump(item, copy, protocol)
            self.seen.append(copy.getvalue())
            file.write(copy.getvalue())

        def dumped_whole(item: object, protocol: int | None = None) -> Any:  # noqa: ANN401  # as it answers
            found = dumps(item, protocol)
            self.seen.append(bytes(found))
            return found

        def submitted(pool: ProcessPoolExecutor, *given: Any) -> Future[Any]:  # noqa: ANN401  # as it is called
            future: Future[Any] = submit(pool, *given)
            for child in active_children():
                self.children += 1
                place = Path("/proc", str(child.pid))
                self.seen += [(place / name).read_bytes() for name in ("cmdline", "environ")]
            return future

        patch.setattr(reduction, "dump", dumped)
        patch.setattr(reduction.ForkingPickler, "dumps", dumped_whole)
        patch.setattr(ProcessPoolExecutor, "submit", submitted)


@pytest.mark.parametrize("rows", [30])
@pytest.mark.usefixtures("pair", "rows")
def test_the_key_of_a_run_is_in_nothing_that_it_writes_or_gives_to_children(
    config: Path,
    postgres_database: PostgresDatabase,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    secret, used = token_bytes(16), list[bytes]()
    monkeypatch.setattr("twinstore_backfill.verify.digest_ranges.token_bytes", lambda _size: secret)
    monkeypatch.setattr("twinstore_backfill.verify.plan.WORTH_A_PROCESS", 0)
    honest = Scanner.__init__

    def begun(scanner: Scanner, *given: Any, **named: Any) -> None:  # noqa: ANN401  # as it is called
        used.append(named["secret"])
        honest(scanner, *given, **named)

    monkeypatch.setattr(Scanner, "__init__", begun)
    set_bad(postgres_database, [record(number).id for number in range(0, 30, 7)])
    watch = Watch(monkeypatch)
    sides = ("--module", "scheduler", "--from", "mongo", "--to", "postgres")
    command = ("--config", config, "backfill", "verify", *sides, "--jobs", 2, "--range-size", 10)
    with caplog.at_level(logging.DEBUG):
        answer = invoke(capsys, *command, "--out", config.parent / "out")
    assert answer.code == Exit.DIFFERENT
    assert watch.children
    assert set(used) == {secret}
    files = [path.read_bytes() for path in config.parent.rglob("*") if path.is_file()]
    assert len(files) > 5
    printed = [answer.out.encode(), answer.err.encode(), caplog.text.encode()]
    for form in forms_of(secret):
        assert not [text[:100] for text in (*watch.seen, *files, *printed) if form in text]
