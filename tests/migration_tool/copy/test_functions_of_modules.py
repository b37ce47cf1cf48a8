"""Functions of a module that change documents before they are copied: a sample, from copy to report."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.data_modules import installed_module, opened
from tests.support.foreign import insert
from twinstore.errors import ValidationError
from twinstore.migration import Migration, Side
from twinstore_backfill.copy.report import copy_report
from twinstore_backfill.report.html import html
from twinstore_backfill.report.markdown import markdown
from twinstore_backfill.rules.model import AcceptRule, JobRules, TrimRule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.copies import Pair
    from tests.support.databases import MongoDatabase, MongoServer, PostgresDatabase

SAMPLE = Path("samples/normalise/letters.py")
DAY = datetime(1897, 5, 2)  # noqa: DTZ001  # as the client has dates
TRIM = TrimRule(number=1, line=1, entity="letters", path=("town",), reason="blanks")
ACCEPT = AcceptRule(
    number=2,
    line=2,
    entity="letters",
    path=(),
    reason="illegible",
    what="function",
    approved_by="Ada",
    most=1,
)


@pytest.fixture
def pair(
    mongo_server: MongoServer,
    empty_mongo_database: MongoDatabase,
    empty_postgres_database: PostgresDatabase,
    tmp_path: Path,
) -> Iterator[Pair]:
    """Return an archive of letters of which the old service and a newer one wrote some, and a target."""
    sent = {"year": 1897, "month": 5, "day": 2}
    insert(
        mongo_server.client[empty_mongo_database.name]["letters"],
        [
            *({"_id": f"old-{number}", "sent": sent, "place": " Bern, Switzerland"} for number in range(3)),
            {"_id": "new", "sentAt": DAY, "town": "Bern", "country": "Switzerland"},
            {"_id": "none", "sent": sent, "place": "somewhere secret"},
        ],
    )
    text = SAMPLE.read_text("utf-8")
    with (
        installed_module(tmp_path, "letters", empty_postgres_database.config, text=text),
        opened("letters", empty_mongo_database, empty_postgres_database, tmp_path / "copy") as pair,
    ):
        yield pair


def test_a_job_goes_on_after_the_file_of_its_function_was_changed(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = pair.copy()
    monkeypatch.setattr("twinstore_backfill.rules.functions.source_digest", lambda *_: "0" * 64)
    dry, again = (pair.copy(execute=execute) for execute in (False, True))
    assert dry.totals.all() == again.totals.all()
    # The function gives the same as before, so the rows that are there are right.
    assert (again.complete, again.totals.all()["unchanged"]) == (True, first.totals.all()["written"])


def test_a_copy_and_a_verification_call_the_function_and_say_that_it_is_not_checked(pair: Pair) -> None:
    digest = sha256(SAMPLE.read_bytes()).hexdigest()
    dry, result = (pair.copy(rules=JobRules((TRIM,)), execute=execute) for execute in (False, True))
    assert dry.totals.rules == result.totals.rules == {"function letters": 3, "trim letters.town": 3}
    assert result.totals.all()["written"] == 4
    assert [line["reason"] for line in result.quarantine] == ["the function of the module raises ValueError"]
    (letters,) = pair.target.bulk.entities()
    with pair.target.bulk.view() as view:
        stored = [record.model.wire() for record in view.records_of(letters, [("old-0",)]) if record.model]
    assert stored == [
        {"id": "old-0", "town": "Bern", "country": "Switzerland", "sentAt": DAY.replace(tzinfo=UTC)}
    ]

    left, right = (
        Side(store.backend, store.spec.settings()) for store in (pair.source, pair.target) if store.spec
    )
    from_python = Migration(left, right, "letters", JobRules((TRIM,))).copy().result()
    assert from_python.rules == copy_report(dry).rules
    with pytest.raises(ValidationError, match="reverse = true cannot undo the functions"):
        Migration(left, right, "letters", JobRules(reverse=True)).copy().result()

    report = pair.verify(rules=JobRules((TRIM, ACCEPT)))
    assert (report.verdict, report.approved_exceptions) == ("PASS", 1)
    assert {item.kind: item.rows for item in report.rules} == {"function": 3, "trim": 3}
    for text in (html(report), markdown(report)):
        first = text[: text.index("Rules")] if "Rules" in text else text
        assert "called the same functions of the module, so their faults are not found" in first
        assert f"letters: 3 documents (letters.letter, SHA-256 {digest} of its file)" in first
        assert "secret" not in text
