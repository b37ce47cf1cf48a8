"""What a soak looks with sees what it looks for."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

from tests.server_supervisor import ROOT
from tests.soak.calls import entries_of, own_run, strange
from tests.soak.observing import open_transactions
from twinstore.testing.scheduler.builders import make_run

if TYPE_CHECKING:
    from pathlib import Path

    from twinstore.scheduler import ExecutionLogEntry, Run


# In a process of its own: what other tests have left in this one comes and goes.
LEAVING: Final = """
import sys
from threading import Event, Thread
from tests.soak.remains import Remains
before, ends = Remains.now(), Event()
print(before.left_over())
thread = Thread(target=ends.wait, name="forgotten")
thread.start()
with open(sys.argv[1], "w"):
    print(*Remains.now().more_than(before), sep="\\n")
ends.set()
thread.join()
"""


def test_threads_and_files_that_were_not_there_before_are_named(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LEAVING, str(tmp_path / "kept")]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    nothing, thread, file = told.splitlines()
    assert nothing == "[]"
    assert thread.startswith("the thread forgotten")
    assert file.endswith(f"({tmp_path / 'kept'})")


def test_rows_of_another_tenant_are_seen_by_their_column_and_by_their_content() -> None:
    mine: list[Run | ExecutionLogEntry] = [own_run("red", "1"), *entries_of("red", "1", ("a",))]
    assert strange("red", mine) == []
    assert strange("blue", mine) == ["a row of red with 'red 1'", "a row of red with 'red a'"]
    mixed = [entry.evolve(tenant_id="red") for entry in entries_of("blue", "1", ("a",))]
    assert strange("red", [*mixed, make_run("red", "1")]) == [
        "a row of red with 'blue a'",
        "a row of red with 'nothing'",
    ]


def test_transactions_of_clients_that_live_are_told_from_those_of_the_dead() -> None:
    def idle(connection: int) -> dict[str, Any]:
        client = f"127.0.0.1:{connection}"
        return {"type": "idleSession", "transaction": {}, "connectionId": connection, "client": client}

    lives: list[dict[str, Any]] = [{"type": "op", "connectionId": 7}]
    assert open_transactions([*lives, idle(7), idle(8)]) == ["a transaction of 127.0.0.1:7 (None)"]
