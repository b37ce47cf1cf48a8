"""The samples for Airflow and Dagster copy, verify and cancel, each in an environment with the real thing."""

from __future__ import annotations

import os
import subprocess
import venv
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.copies import fill, open_store, server_settings, write_config
from twinstore.config import load_settings

if TYPE_CHECKING:
    from tests.support.databases import MongoDatabase, PostgresDatabase
    from tests.support.distributions import Installed

pytestmark = pytest.mark.long

SAMPLES: Final = Path(__file__).parents[2] / "samples/orchestrators"
# The copy is cancelled in the middle, the way the orchestrator does it. Then everything runs.
AIRFLOW: Final = """
import subprocess, sys
from dataclasses import replace
from pathlib import Path
from threading import Timer

for command in ("db", "migrate"), ("dags", "reserialize"):
    subprocess.run([Path(sys.executable).with_name("airflow"), *command], check=True, capture_output=True)
import airflow_dag as sample
from twinstore.migration import InterruptedRunError

sample.OUT = Path.cwd()
quick = replace(sample.COPY, out=Path("copy"))
sample.COPY = replace(quick, max_rate=1, range_size=1, jobs=1)
task = sample.dag.get_task("copy")
Timer(4, task.on_kill).start()
try:
    task.execute({})
except InterruptedRunError as error:
    print("CANCELLED", error)
sample.COPY = quick
print("ENDED", sample.dag.test().state)
"""
DAGSTER: Final = """
import os, signal
from dataclasses import replace
from pathlib import Path
from threading import Timer

import dagster_job as sample

sample.OUT = Path.cwd()
quick = replace(sample.COPY, out=Path("copy"))
sample.COPY = replace(quick, max_rate=1, range_size=1, jobs=1)
Timer(4, os.kill, (os.getpid(), signal.SIGINT)).start()
# Without a request from its own page, Dagster reports an interrupt as a failure.
if not sample.migrate_scheduler.execute_in_process(raise_on_error=False).success:
    print("CANCELLED")
sample.COPY = quick
print("ENDED", "success" if sample.migrate_scheduler.execute_in_process().success else "failed")
"""


@pytest.mark.parametrize(
    ("requirement", "program"),
    [("apache-airflow>=3.1,<4", AIRFLOW), ("dagster>=1.12,<2", DAGSTER)],
    ids=["airflow", "dagster"],
)
def test_a_sample_copies_verifies_and_is_cancelled(
    requirement: str,
    program: str,
    *,
    installed: Installed,
    mongo_database: MongoDatabase,
    postgres_database: PostgresDatabase,
    tmp_path: Path,
) -> None:
    file = write_config(tmp_path / "settings.json", server_settings(mongo_database, postgres_database))
    with open_store("scheduler", "Mongo", load_settings(file)) as source:
        fill(source.storage)
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv/bin/python"
    ours = f"twinstore[backfill,mongo,postgres] @ {installed.wheel.as_uri()}"
    subprocess.run([python, "-m", "pip", "install", "-q", requirement, ours], check=True, capture_output=True)
    environment = {
        **os.environ,
        "PYTHONPATH": str(SAMPLES),
        "TWINSTORE_CONFIG": str(file),
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(SAMPLES),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "DAGSTER_HOME": str(tmp_path),
    }
    done = subprocess.run(
        [python, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith(("CANCELLED", "ENDED"))]
    assert [line.split()[0] for line in lines] == ["CANCELLED", "ENDED"], (done.stdout + done.stderr)[-5000:]
    assert lines[1] == "ENDED success", (done.stdout + done.stderr)[-5000:]
    assert "PASS" in (tmp_path / "report/parity-report.md").read_text("utf-8")
