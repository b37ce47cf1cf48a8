"""Every command, verdict and interruption: exit code, words and files agree, and no traceback is shown."""

from __future__ import annotations

import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import psutil
import pytest

from tests.conftest import is_long
from tests.migration_tool.cli.endings import (
    PATIENCE,
    Case,
    Ended,
    Stores,
    agreement,
    command_of,
    end_here,
    end_of,
    ended,
    files_of,
    interrupt_group,
    place,
    prepared,
    start,
)
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.databases import MongoDatabase, PostgresDatabase, PostgresServer

# Processes at a time: the servers work as well.
AT_ONCE: Final = 3
# As many cases as run together; each waits for its whole portion.
PORTION: Final = 12
# Moments of an interruption, and those of the full form.
INTERRUPTIONS: Final = 5
MORE_INTERRUPTIONS: Final = 40
# About as many audit events as a verification of these stores raises; most of them are imports.
EVENTS: Final = 14_000
SIDES: Final = "--module scheduler --from mongo --to postgres"
ON: Final = "--module scheduler --backend"
VERIFY: Final = f"backfill verify {SIDES}"
COPY: Final = f"backfill copy {SIDES}"
PLAN: Final = f"backfill plan {SIDES}"
STATUS: Final = "backfill status --module scheduler --to postgres"
FRESH: Final = "backfill verify --module scheduler --from none --to postgres --start-clean"
DECIDED: Final = "--reason x --approved-by y"
OUT: Final = "--out {out}"
JSON: Final = "--format json"
CASES: Final = (
    Case("help", "--help", 0, alone=True),
    Case("backends", f"backends {JSON}", 0, alone=True),
    Case("config-show", f"config show {JSON}", 0, alone=True),
    Case("config-check", f"config check {ON} postgres {JSON}", 0),
    Case("config-gone", f"config check {ON} mongo", 4, config="no-mongo"),
    Case("status", f"{STATUS} {JSON}", 0, alone=True),
    Case("status-gone", f"{STATUS} {OUT} {JSON}", 4, config="no-postgres", writes=False),
    Case("plan", f"{PLAN} {JSON}", 0),
    Case("plan-gone", f"{PLAN} {JSON}", 4, config="no-mongo"),
    Case("doctor", "backfill doctor", 2),
    Case("no-command", "backfill", 2),
    Case("pending", f"migrate status {ON} postgres {JSON}", 1, config="empty", alone=True),
    Case("schema", f"migrate verify {ON} postgres {JSON}", 0),
    Case("purge", f"purge {ON} postgres {JSON}", 0, alone=True),
    Case("purge-gone", f"purge {ON} postgres", 4, config="no-postgres"),
    Case("report-nowhere", "backfill report --in nowhere.json", 2, alone=True),
    Case("pass", f"{VERIFY} --tenant acme {OUT} {JSON}", 0, stale=True),
    Case("pass-by-two", f"{VERIFY} --tenant acme --jobs 2 --range-size 2 {OUT}", 0, long=True),
    Case("fail", f"{VERIFY} {OUT} {JSON}", 1, stale=True),
    Case("quarantined", f"{VERIFY} --tenant broken {OUT}", 3, stale=True),
    Case("not-ready", f"{VERIFY} --tenant acme --require-cutover-ready {OUT} {JSON}", 3),
    Case("start-clean", f"{FRESH} {DECIDED} {OUT} {JSON}", 1, stale=True),
    Case("start-clean-no-name", f"{FRESH} {OUT}", 2, stale=True),
    Case("verify-gone", f"{VERIFY} {OUT} {JSON}", 4, stale=True, config="no-mongo"),
    Case("verify-cut", f"{VERIFY} {OUT}", 4, stale=True, config="cut-verify"),
    Case("verify-refused", f"{VERIFY} {OUT}", 6, config="empty"),
    Case("verify-tenant", f"{VERIFY} --tenant nobody {OUT}", 2, stale=True),
    Case("verify-no-directory", f"{VERIFY} --out /dev/full", 2),
    Case("verify-disk", f"{VERIFY} --tenant acme {OUT}", 4, full=True, stale=True),
    Case("recheck-nowhere", f"backfill recheck {SIDES} --in nowhere {OUT} {JSON}", 2, stale=True, alone=True),
    Case("recheck-gone", f"backfill recheck {SIDES} --in {{given}} {OUT}", 4, config="no-mongo"),
    Case("repair", f"backfill repair {SIDES} --in {{given}} {OUT} {JSON}", 1, writes=False, alone=True),
    Case("diff", f"backfill diff {SIDES} --entity runs --key acme-run-1 {JSON}", 0, alone=True),
    Case("diff-gone", f"backfill diff {SIDES} --entity runs --key acme-run-1", 4, config="no-mongo"),
    Case("quarantine", f"backfill quarantine list {ON[:-10]} --to postgres {JSON}", 0, alone=True),
    Case(
        "selftest-gone",
        f"backfill selftest {SIDES} --scratch {{given}}.json {OUT}",
        2,
        stale=True,
        alone=True,
    ),
    Case("selftest-away", f"backfill selftest {SIDES} --scratch {{here}} {OUT}", 4, config="no-mongo"),
    Case("dry", f"{COPY} --tenant acme {OUT} {JSON}", 0, stale=True, alone=True),
    Case("conflict", f"{COPY} --tenant umbrella --execute {OUT} {JSON}", 1, stale=True),
    Case("copied", f"{COPY} --tenant acme --execute {OUT} {JSON}", 0),
    Case("extra", f"{COPY} --tenant surplus --delete-extra {OUT} {JSON}", 1, stale=True),
    Case("copied-in-part", f"{COPY} --tenant broken --execute {OUT}", 3, stale=True),
    Case("copy-gone", f"{COPY} --execute {OUT} {JSON}", 4, stale=True, config="no-postgres"),
    Case("copy-cut", f"{COPY} --tenant acme --tenant broken --execute {OUT}", 4, config="cut-copy"),
    Case("copy-refused", f"{COPY} --execute {OUT}", 6, stale=True, config="superuser"),
    Case("copy-unknown", f"{COPY} --nope", 2),
    Case("copy-no-file", f"{COPY} --source-config nowhere.json {OUT} {JSON}", 2, stale=True),
    Case("rate", f"{COPY} --max-rate nan --execute {OUT}", 2, stale=True),
    Case("plan-gone-text", PLAN, 0, stdout="gone"),
    Case("plan-closed", f"{PLAN} {JSON}", 0, stdout="closed"),
    Case("fail-gone", f"{VERIFY} {OUT}", 1, stdout="gone"),
    Case("fail-gone-json", f"{VERIFY} {OUT} {JSON}", 1, stdout="gone", long=True),
    Case("fail-closed", f"{VERIFY} {OUT}", 1, stdout="closed", long=True),
    Case("plan-full", PLAN, 4, stdout="full"),
    Case("plan-full-json", f"{PLAN} {JSON}", 4, stdout="full", long=True),
    Case("help-full", "--quiet --help", 4, stdout="full"),
    Case("help-of-one-full", "backfill verify --help", 4, stdout="full", long=True),
    Case("version-full", "--quiet --version", 4, stdout="full", long=True),
    Case("fail-full", f"{VERIFY} {OUT}", 1, stdout="full"),
)


@pytest.fixture(scope="module")
def stores(
    module_mongo_database: MongoDatabase,
    module_postgres_database: PostgresDatabase,
    postgres_server: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Stores]:
    directory = tmp_path_factory.mktemp("stores")
    with (
        postgres_server.empty_database() as empty,
        prepared(module_mongo_database, module_postgres_database, empty, directory) as stores,
    ):
        yield stores


class Endings:
    """Runs the cases that need a process when the first of their portion is asked for, a few at a time."""

    def __init__(self, stores: Stores, directory: Path, *, long_form: bool) -> None:
        self._stores, self._directory = stores, directory
        self._in_processes = [
            case for case in CASES if (case.needs_process and not case.long) or (long_form and case.alone)
        ]
        self._in_processes += [case for case in CASES if case.long and long_form]
        self._ended: dict[str, Ended] = {}

    def of(self, case: Case) -> Ended:
        """Return how a case ended."""
        if case not in self._in_processes:
            return end_here(case, self._stores.configs, self._directory)
        if case.name not in self._ended:
            first = self._in_processes.index(case) // PORTION * PORTION
            portion = self._in_processes[first : first + PORTION]
            with ThreadPoolExecutor(AT_ONCE) as pool:
                ends = pool.map(lambda each: end_of(each, self._stores.configs, self._directory), portion)
                self._ended |= {each.name: end for each, end in zip(portion, ends, strict=True)}
        return self._ended[case.name]


@pytest.fixture(scope="module")
def endings(stores: Stores, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Endings:
    return Endings(stores, tmp_path_factory.mktemp("endings"), long_form=is_long(pytestconfig))


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name, marks=[pytest.mark.long] if case.long else []) for case in CASES],
)
def test_exit_code_words_and_files_agree(case: Case, endings: Endings) -> None:
    agreement(case, endings.of(case))


INTERRUPTED: Final = """
import os, signal, sys
left = int(sys.argv.pop(1))
def count(event, _):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGINT)
from twinstore_backfill.cli import main
sys.addaudithook(count)
sys.exit(main())
"""


def test_ctrl_c_at_any_moment_shows_no_traceback(stores: Stores, tmp_path: Path, *, long_form: bool) -> None:
    count = MORE_INTERRUPTIONS if long_form else INTERRUPTIONS
    moments = random.Random(8).sample(range(1, EVENTS), count)
    config = str(stores.configs["good"])

    def interrupted(moment: int) -> tuple[int, Ended]:
        out = tmp_path / str(moment)
        command = f"{VERIFY} --tenant acme --out {out} {JSON}".split()
        given = [sys.executable, "-c", INTERRUPTED, str(moment), "--config", config, *command]
        # A real start, because it may be interrupted as well.
        done = subprocess.run(given, check=False, capture_output=True, text=True, timeout=PATIENCE)
        return moment, Ended(done.returncode, done.stdout, done.stderr, files_of(out), out.exists())

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = dict(pool.map(interrupted, moments))
    for moment, end in found.items():
        code = end.code if end.code == Exit.INTERRUPTED else 0
        case = Case(f"moment {moment}", f"{VERIFY} {OUT} {JSON}", code)
        # Before the command begins there is no directory yet.
        agreement(case if end.files else Case(case.name, f"{VERIFY} {JSON}", code), end)
    assert Exit.INTERRUPTED in {end.code for end in found.values()}


def test_ctrl_c_reaches_every_process_of_a_verification(stores: Stores, tmp_path: Path) -> None:
    arguments = f"{VERIFY} --jobs 3 --range-size 1 {OUT}"
    process = start(command_of(stores.configs["good"], arguments, tmp_path / "out"), group=True)
    # While the first worker process imports its modules.
    with suppress(psutil.NoSuchProcess):
        while process.poll() is None and not psutil.Process(process.pid).children():
            pass
        interrupt_group(process)
    agreement(Case("group", f"{VERIFY} {OUT}", Exit.INTERRUPTED), ended(process, tmp_path / "out"))


FINISHER: Final = """
import os, signal, sys
os.kill(os.getppid(), signal.SIGINT)
free = signal.getsignal(signal.SIGINT) is signal.default_int_handler
sys.stderr.write(f"interruptible: {free}, code {os.environ['TWINSTORE_EXIT_CODE']}\\n")
"""


@pytest.mark.parametrize(("config", "code"), [("good", 1), ("no-mongo", 4)])
def test_a_signal_after_the_outcome_changes_nothing_while_the_command_of_on_finish_runs(
    config: str, code: int, stores: Stores, tmp_path: Path
) -> None:
    script = tmp_path / "finish.py"
    script.write_text(FINISHER)
    given = command_of(stores.configs[config], f"{VERIFY} {OUT}", tmp_path / "out")
    process = start([*given, "--on-finish", f"{sys.executable} {script}"])
    found = ended(process, tmp_path / "out")
    agreement(Case("finish", f"{VERIFY} {OUT}", code), found)
    assert f"interruptible: True, code {code}" in found.err


def test_a_verification_stops_at_a_signal_while_its_server_is_silent(stores: Stores, tmp_path: Path) -> None:
    case = Case("held", f"{VERIFY} {OUT}", 143, stale=True, config="held")
    out = place(case, tmp_path)
    process = start(command_of(stores.configs[case.config], case.arguments, out))
    assert stores.held.reached.wait(PATIENCE)
    process.terminate()
    stores.held.go_on.set()
    agreement(case, ended(process, out))
