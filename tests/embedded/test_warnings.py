"""What the embedded servers do not raise they say in the log, without a password."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from twinstore.errors import ConfigurationError, UnavailableError
from twinstore_embedded import accounts, lifecycle, mongod, postgres
from twinstore_embedded.processes import end, is_alive
from twinstore_embedded.state import STATE_FILE, ServerState, load_state, save_state

if TYPE_CHECKING:
    from pathlib import Path

LOG = "twinstore.embedded"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
POLITE = "import signal; print(flush=True); signal.pause()"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def child(program: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()  # its handler is set
    return process


def test_a_process_that_must_be_killed_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with child(STUBBORN) as process:
        end(process.pid, signal.SIGTERM, timeout=0.1)
        assert not is_alive(process.pid)
    assert warnings(caplog) == [f"process {process.pid} did not stop within 0.1 s and is killed"]


def test_a_process_that_stops_or_has_stopped_is_not(caplog: pytest.LogCaptureFixture) -> None:
    with child(POLITE) as process:
        end(process.pid, signal.SIGTERM, timeout=60)
        process.wait()
        end(process.pid, signal.SIGTERM, timeout=60)
    assert warnings(caplog) == []


def test_a_damaged_state_is_said_without_its_content(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert load_state(tmp_path) is None
    assert warnings(caplog) == []
    save_state(tmp_path, ServerState(port=1, passwords={"postgres": "s3cret"}))
    path = tmp_path / STATE_FILE
    path.write_bytes(path.read_bytes()[:-2])
    assert load_state(tmp_path) is None
    assert warnings(caplog) == [f"{path} is damaged; port, owner and passwords in it are lost"]
    assert "s3cret" not in caplog.text


def test_another_account_than_ours_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    nobody = accounts.Account("nobody", 65534, 65534)
    monkeypatch.delenv(accounts.USER_VARIABLE, raising=False)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(accounts, "_by_name", {"nobody": nobody}.get)
    monkeypatch.setattr(accounts, "_create", lambda _: None)
    assert accounts.account_for(tmp_path / "none") == nobody
    assert warnings(caplog) == ["the user twinstore_pg cannot be created: PostgreSQL runs as nobody"]


def test_the_second_of_two_servers_that_do_not_start_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    def no_mongo(*_: object, **__: object) -> None:
        raise UnavailableError("no mongod")

    def no_postgres(*_: object, **__: object) -> None:
        raise ConfigurationError("no postgres")

    monkeypatch.setattr(mongod, "start_mongo", no_mongo)
    monkeypatch.setattr(postgres, "start_postgres", no_postgres)
    with pytest.raises(UnavailableError, match="no mongod"):
        lifecycle.start(tmp_path)
    assert [record.name for record in caplog.records] == [LOG]
    assert warnings(caplog) == ["the other server did not start either: no postgres"]
