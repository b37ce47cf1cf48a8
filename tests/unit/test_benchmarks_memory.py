"""The watcher of memory sees a process with all below it, and takes next to nothing from the cores."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from time import sleep, thread_time

import pytest

from benchmarks import memory
from benchmarks.memory import PeakMemory, family, proportional_bytes, resident_pages

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="Linux tells it in /proc"
)

MEGABYTE = 1024 * 1024
# Fills memory and forks in a thread of its own; the child shares all pages and ends with its parent.
PARENT = """
import os, sys, threading
kept = bytearray(64 * 1024 * 1024)
for at in range(0, len(kept), 4096):
    kept[at] = 1
def fork():
    if os.fork() == 0:
        os.write(1, b"ready\\n")
        sys.stdin.read()
        os._exit(0)
    os.wait()
thread = threading.Thread(target=fork)
thread.start()
sys.stdin.read()
thread.join()
"""


@pytest.fixture(scope="module")
def parent() -> Iterator[int]:
    with ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        )
        assert process.stdin
        stack.callback(process.stdin.close)
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        yield process.pid


def test_children_of_every_thread_belong_to_the_family(parent: int) -> None:
    assert len(family(parent)) == 2


def test_shared_pages_count_once(parent: int) -> None:
    sizes = [proportional_bytes(pid) for pid in family(parent)]
    assert 64 * MEGABYTE < sum(sizes) < 100 * MEGABYTE
    assert 4096 * sum(map(resident_pages, family(parent))) > 128 * MEGABYTE


def test_the_peak_is_the_sum_of_the_family(parent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "LOOK_SECONDS", 0.01)
    with PeakMemory(parent) as watched:
        while watched.peak is None:
            sleep(0.01)
    assert 64 * MEGABYTE < watched.peak < 100 * MEGABYTE
    assert watched.used_seconds > 0


def test_an_ended_process_has_no_memory() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
        with PeakMemory(process.pid) as watched:
            pass
    assert watched.peak is None


def test_looks_at_unchanged_memory_are_cheap(parent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def proportional(pid: int) -> int:
        read.append(pid)
        return proportional_bytes(pid)

    monkeypatch.setattr(memory, "proportional_bytes", proportional)
    watched = PeakMemory(parent)
    watched.look()
    used = thread_time()
    for _ in range(4):
        watched.look()
    # Walking all processes of a machine takes milliseconds; these looks read five small files each.
    assert (thread_time() - used) / 4 < 0.002
    assert len(read) == len(family(parent))
