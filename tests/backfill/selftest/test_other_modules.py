"""The self-test of the modules beside the scheduler, whose documents have generated ids and free JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.backfill.test_pairs import FOR_EVER, fill
from tests.backfill.toolkit import invoke, open_store, server_settings, write_config
from twinstore.config import load_settings

if TYPE_CHECKING:
    from pathlib import Path

    from tests.databases import MongoServer, PostgresServer


@pytest.mark.long
@pytest.mark.parametrize("module", ["tracking", "taskrunner"])
def test_all_that_is_planted_is_found_and_nothing_else(
    module: str,
    mongo_server: MongoServer,
    postgres_server: PostgresServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with (
        mongo_server.database() as source,
        mongo_server.database() as documents,
        postgres_server.empty_database() as tables,
    ):
        settings = {**source.config, **FOR_EVER}
        with open_store(module, "mongo", load_settings(settings, environ={})) as store:
            store.storage.initializer.ensure_migrations()
            fill(module, cast("Any", store.storage))
        scratch = write_config(tmp_path / "scratch.json", server_settings(documents, tables))
        config = ("--config", write_config(tmp_path / "source.json", settings))
        sides = ("--module", module, "--from", "mongo", "--to", "postgres", "--scratch", scratch)
        answer = invoke(capsys, *config, "backfill", "selftest", *sides, "--out", tmp_path)
    report = json.loads((tmp_path / "selftest-report.json").read_text())
    assert (answer.code, report["problems"], report["false_alarms"]) == (0, [], 0)
    assert report["found"] == report["planted"] > 400
    assert report["untested"] == []
