"""A service that gets a signal to stop answers the requests it has begun, and what it answered is stored."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections import deque
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Final

import httpx
import pytest

from tests.docs.pages import DOCS, blocks
from tests.support.databases import environment_of, fresh_settings
from twinstore import open_storage

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES: Final = {block.file: block.body for block in blocks(DOCS / "tutorial-service.md") if block.file}
# In place of the time that the tutorial gives its reader: the request goes on when the test says so.
WAITS: Final = {"    sleep(2)": "    input()", "await asyncio.sleep(2)": "await asyncio.to_thread(input)"}
# How long a machine that is busy may take for an answer.
SECONDS: Final = 60.0
ADDRESS: Final = re.compile(r"running on (http://[\d.:]+)")
STORES: Final = [
    pytest.param("app", "mongo", marks=pytest.mark.long),
    ("app", "postgres"),
    ("app_async", "mongo"),
    pytest.param("app_async", "postgres", marks=pytest.mark.long),
]


class Service:
    """A service in a separate process, and its output."""

    def __init__(self, folder: Path, name: str, environment: dict[str, str]) -> None:
        for file, body in FILES.items():
            text = body
            for taken, given in WAITS.items():
                text = text.replace(taken, given)
            (folder / str(file)).write_text(text)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", f"{name}:app", "--port", "0"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.said: deque[str] = deque(maxlen=50)

    def until(self, words: re.Pattern[str] | str) -> re.Match[str]:
        """Read on until it says this."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)
            if match := re.search(words, line):
                return match
        raise AssertionError("".join(self.said))

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@pytest.fixture
def service(
    request: pytest.FixtureRequest, name: str, driver: str, tmp_path: Path
) -> Iterator[tuple[Service, dict[str, object]]]:
    with fresh_settings(driver, request) as settings:
        service = Service(tmp_path, name, environment_of(settings))
        with service.process:
            yield service, dict(settings)
            service.process.kill()


def moved_to(timezone: str, path: str) -> httpx.Response:
    """Ask for another time zone."""
    return httpx.post(f"{path}/move", params={"timezone": timezone}, timeout=SECONDS)


@pytest.mark.parametrize(("name", "driver"), STORES)
def test_what_was_begun_is_answered_and_stored(service: tuple[Service, dict[str, object]]) -> None:
    running, settings = service
    answers = list[httpx.Response]()
    url = running.until(ADDRESS)[1]
    path = f"{url}/tenants/acme/schedules/nightly"
    assert httpx.get(f"{url}/readyz", timeout=SECONDS).json() == {"status": "ok"}
    nightly = json.loads(FILES["nightly.json"])
    assert httpx.put(path, json=nightly, timeout=SECONDS).status_code == 200
    assert moved_to("Mars", path).status_code == 400
    move = Thread(target=lambda: answers.append(moved_to("Asia/Tokyo", path)))
    move.start()
    running.until("moving nightly")
    running.process.send_signal(signal.SIGTERM)
    running.until("Waiting for connections to close")
    running.go_on()
    running.until("Application shutdown complete")
    move.join()
    assert [answer.status_code for answer in answers] == [200]
    with open_storage(settings) as storage:
        assert storage.scheduler.schedules.get_required("acme", "nightly").timezone == "Asia/Tokyo"
