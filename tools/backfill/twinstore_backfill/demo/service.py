"""The sample service over HTTP, before and after the switch: the same program, the same data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final
from urllib.parse import quote
from urllib.request import Request, urlopen

from twinstore_backfill.demo.environment import without_settings
from twinstore_backfill.demo.failure import DemoFailedError
from twinstore_backfill.demo.loading import shipped_folder

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["missing_libraries", "read_over_http", "serving", "work_over_http"]

LIBRARIES: Final = ("fastapi", "httpx", "prometheus_client", "uvicorn")
TENANT: Final = "over-http"
# What is compared before and after the switch.
LISTS: Final = ("schedules", "triggers", "runs", "run-summaries", "policy-runs", "audit")
PATIENCE: Final = 60.0  # seconds for a worker to execute a job


def missing_libraries() -> list[str]:
    """Return what the service needs and is not installed."""
    return [name for name in LIBRARIES if find_spec(name) is None]


@contextmanager
def serving(settings: Path, backend: str) -> Generator[str]:
    """Run the service and a worker on a store that one variable chooses; give the address.

    Raises:
        DemoFailedError: it does not start; what it said stands in ``service.log`` beside the settings.
    """
    log = settings.parent / "service.log"
    with log.open("ab") as said:
        service = _started(backend, said, "scheduler_service", "--port", "0", "--config", str(settings))
        worker: subprocess.Popen[bytes] | None = None
        try:
            url = b"" if service.stdout is None else service.stdout.readline().strip()
            if not url:
                raise DemoFailedError(f"The sample service did not start; {log} says why.")
            options = ("--url", url.decode(), "--tenant", TENANT, "--pause", "0.1")
            worker = _started(backend, said, "scheduler_service.worker", *options)
            yield url.decode()
        finally:
            for process in filter(None, (worker, service)):
                process.terminate()
                process.communicate(timeout=PATIENCE)


def _started(backend: str, said: BinaryIO, module: str, *options: str) -> subprocess.Popen[bytes]:
    folder = str(shipped_folder("service"))
    return subprocess.Popen(  # noqa: S603  # our own program
        [sys.executable, "-m", module, *options],
        env={**without_settings(os.environ), "PYTHONPATH": folder, "Persistence__Scheduler": backend},
        stdout=subprocess.PIPE,
        stderr=said,
    )


def work_over_http(url: str, name: str) -> None:
    """Store a schedule that is due, fire it, and wait until the worker has executed its job.

    Raises:
        DemoFailedError: the job was not executed in time, or a call was refused.
    """
    before = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=2)
    schedule = {
        "id": f"{TENANT}-{name}",
        "tenantId": TENANT,
        "name": name,
        "whenCron": "0 * * * *",
        "selection": {"scope": "all-images"},
        "createdAt": before.isoformat(),
        "createdBy": "demo",
    }
    path = f"schedules/{TENANT}-{name}"
    _call(url, path, "PUT", schedule)
    run = json.loads(_call(url, f"{path}/trigger/fire", "POST"))
    end = time.monotonic() + PATIENCE
    # A worker ends the run first and then its job; what is read in between would change afterwards.
    job = f"policy-runs/{quote(run['id'], safe='')}"
    while json.loads(_call(url, job))["status"] != "succeeded":
        if time.monotonic() > end:
            raise DemoFailedError(f"No worker has executed {run['id']} within {PATIENCE:.0f} s.")
        time.sleep(0.05)


def read_over_http(url: str) -> dict[str, bytes]:
    """Return what the service answers for each list."""
    return {name: _call(url, name) for name in LISTS}


def _call(url: str, path: str, method: str = "GET", body: object = None) -> bytes:
    content = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = Request(f"{url}/tenants/{TENANT}/{path}", content, headers, method=method)  # noqa: S310  # our own
    try:
        with urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310  # our own
            found: bytes = answer.read()
    except OSError as error:
        raise DemoFailedError(f"{method} {path} of the sample service ended with {error}.") from error
    return found
