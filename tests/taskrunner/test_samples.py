"""The samples of the task runner are canonical, and come back byte for byte from every driver."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import twinstore
from docs.parts.samples import samples_of
from tests.stores import DRIVERS, fresh_settings
from tests.taskrunner.settings import switched
from twinstore.canonical import CanonicalJsonSerializer
from twinstore.taskrunner import (
    LogLevel,
    PackRunApproval,
    PackRunArtifact,
    PackRunLogEntry,
    PackRunState,
)
from twinstore.taskrunner.module import MODULE

if TYPE_CHECKING:
    from twinstore.canonical import CanonicalModel

FOLDER: Final = Path(__file__).parents[2] / "samples/taskrunner"
MODELS: Final[dict[str, type[CanonicalModel]]] = {
    "pack-artifact.json": PackRunArtifact,
    "pack-run-approval.json": PackRunApproval,
    "pack-run-log.ndjson": PackRunLogEntry,
    "pack-run.json": PackRunState,
}


def sample(name: str) -> bytes:
    return (FOLDER / name).read_bytes()


def run() -> PackRunState:
    return CanonicalJsonSerializer.deserialize(PackRunState, sample("pack-run.json"))


def entries() -> tuple[PackRunLogEntry, ...]:
    lines = sample("pack-run-log.ndjson").splitlines()
    return tuple(CanonicalJsonSerializer.deserialize(PackRunLogEntry, line) for line in lines)


def test_every_sample_is_found_by_its_model() -> None:
    assert samples_of(MODULE) == MODELS


@pytest.mark.parametrize("name", [name for name in MODELS if name.endswith(".json")])
def test_a_sample_is_canonical(name: str) -> None:
    model = CanonicalJsonSerializer.deserialize(MODELS[name], sample(name))
    assert CanonicalJsonSerializer.serialize_pretty(model) == sample(name)


def test_the_log_is_canonical_line_by_line_and_shows_each_level_once() -> None:
    found = entries()
    assert b"".join(CanonicalJsonSerializer.serialize(entry) + b"\n" for entry in found) == sample(
        "pack-run-log.ndjson"
    )
    assert [entry.level for entry in found] == list(LogLevel)
    assert [entry.sequence for entry in found] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_samples_come_back_from_every_driver(driver: str, request: pytest.FixtureRequest) -> None:
    with (
        fresh_settings(driver, request) as settings,
        twinstore.add_taskrunner_storage(switched(settings, driver.title(), {})) as storage,
    ):
        storage.initializer.ensure_migrations()
        artifact = CanonicalJsonSerializer.deserialize(PackRunArtifact, sample("pack-artifact.json"))
        approval = CanonicalJsonSerializer.deserialize(PackRunApproval, sample("pack-run-approval.json"))
        storage.pack_runs.create(run())
        assert storage.pack_run_logs.append(entries()) == 5
        storage.pack_artifacts.upload(artifact)
        storage.pack_run_approvals.save(approval.run_id, [approval])
        key = run().run_id
        stored = storage.pack_runs.get_required(key)
        assert CanonicalJsonSerializer.serialize_pretty(stored) == sample("pack-run.json")
        log = storage.pack_run_logs.read(key)
        assert b"".join(CanonicalJsonSerializer.serialize(entry) + b"\n" for entry in log) == sample(
            "pack-run-log.ndjson"
        )
        (found,) = storage.pack_artifacts.list(key)
        assert CanonicalJsonSerializer.serialize_pretty(found) == sample("pack-artifact.json")
        (decided,) = storage.pack_run_approvals.list(key)
        assert CanonicalJsonSerializer.serialize_pretty(decided) == sample("pack-run-approval.json")
