"""Plant faults into the sample driver, and show which case of the contract kit finds each of them.

    python -m tests.kit.faults                        all of faults.txt; make kit-faults
    python -m tests.kit.faults --only pages           a class, or a part of a name
    python -m tests.kit.faults --kit TestAccess       with the cases of one kit alone

One process collects the kit. Each fault is planted in a fork of it, which runs the cases until one fails:
those that are about the class of the fault first. A failing case counts only if it fails alone too, one about
competing writers twice, and passes alone without the fault.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from importlib import import_module
from inspect import unwrap
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]
SAMPLE: Final = ROOT / "samples/own_driver"
LIST: Final = Path(__file__).with_name("faults.txt")
# Words in the names of the cases that meet a fault of a class first, in this order.
ABOUT: Final = {
    "tenants": "similar_name|foreign|tenan|owner|scope|everybody",
    "order": "order_of_the_key|its_order|first_rows|order_of|includes_its_lower|oldest",
    "pages": "all_pages|its_order|long_list|first_rows|page|list",
    "filters": "conditions|no_values|nothing_match|bounds|filter|counted",
    "ranges": "a_range_is_in|its_lower|it_expires|single_records|batches|counted_by|ranges|long_list",
    "rivals": "since_it_began|left_the_list|Concurrency|appeared_since|other_processes|concurrent",
    "isolation": "one_state|committed_together|may_have_another_key|first_call|Unit|session",
    "values": "every_value|long_keys|replaced|added_to|look_at|equal_row|canonical_bytes|derived|comes_back",
    "unique values": "unique|moves|title|taken|free",
    "atomicity": "rolls_everything|together|unusable|goes_on_in|not_committed|joined|handle|children|logs",
    "errors": "without_schema|out_of_reach|another_kind|parent|inserted_once|unreadable|another_form|error",
    "capabilities": "exactly_when_declared|way_out|Plugin|declar|server|time",
    "schema": "Initializer|migrat|schema",
}
COMPETING: Final = {"race", "rounds", "in_thread", "overtake_change", "overtake_unit", "overtaken", "Process"}
CASE_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class Fault:
    """A text of a module that is replaced.

    Attributes:
        about: its class.
        module: the module, of the driver or of what it inherits.
        name: what is wrong then.
        hunks: the old texts, each of them once in the module, and the new ones.
        reason: why no case finds it; empty for a fault that one must find.
    """

    about: str
    module: str
    name: str
    hunks: list[tuple[str, str]]
    reason: str = ""

    def applied(self, source: str) -> str:
        """Return the source of the module with the fault.

        Raises:
            ValueError: an old text is not there, or more than once.
        """
        for old, new in self.hunks:
            if source.count(old) != 1:
                raise ValueError(f"{self.name}: {source.count(old)} times in {self.module}: {old}")
            source = source.replace(old, new)
        return source


def faults() -> list[Fault]:
    """Return the faults of the list."""
    found: list[Fault] = []
    for block in LIST.read_text("utf-8").split("\n= ")[1:]:
        head, _, body = block.partition("\n")
        about, place, name = head.split(" | ")
        module = f"twinstore.{place}" if "." in place else f"twinstore_sqlite.{place}"
        parts = re.findall(r"((?:^-.*\n)+)((?:^\+.*\n?)*)", body, re.MULTILINE)
        reason = text_of("\n".join(re.findall(r"^\? .*", body, re.MULTILINE)))
        found.append(Fault(about, module, name, [(text_of(old), text_of(new)) for old, new in parts], reason))
    return found


def text_of(lines: str) -> str:
    """Return the text of some lines, each of which begins with a sign and a space."""
    return "\n".join(line[2:] for line in lines.splitlines())


def plant(fault: Fault) -> None:
    """Replace what is different in the module, wherever it is in use by now."""
    module = import_module(fault.module)
    path = str(module.__file__)
    changed = ModuleType(fault.module)
    exec(compile(fault.applied(Path(path).read_text("utf-8")), path, "exec"), vars(changed))  # noqa: S102  # our own source
    for name, new in list(vars(changed).items()):
        adopt(module, name, new)


def adopt(owner: Any, name: str, new: object) -> None:  # noqa: ANN401  # a module or a class
    """Give a module or class what a name is in its changed form."""
    old = vars(owner).get(name)
    if isinstance(new, FunctionType) and new.__module__ == getattr(owner, "__module__", owner.__name__):
        adopt_function(owner, name, old, new)
    elif isinstance(new, property) and isinstance(old, property):
        adopt_function(owner, name, old.fget, new.fget)
    elif isinstance(new, (staticmethod, classmethod)) and isinstance(old, (staticmethod, classmethod)):
        adopt_function(owner, name, old.__func__, new.__func__)
    elif isinstance(new, type) and isinstance(old, type) and isinstance(owner, ModuleType):
        if new.__module__ == owner.__name__:
            for member, value in list(vars(new).items()):
                adopt(old, member, value)
    elif not name.startswith("__") and is_plain(new) and old != new:
        places = [owner, *sys.modules.values()] if isinstance(owner, ModuleType) else [owner]
        for place in places:
            if vars(place).get(name) is old:
                setattr(place, name, new)


def is_plain(value: object) -> bool:
    """Whether a value is data, which has the same meaning in a second copy of its module."""
    plain = (str, int, tuple, frozenset, set, dict)
    return isinstance(value, plain) or (is_dataclass(value) and not isinstance(value, type))


def adopt_function(owner: Any, name: str, old: Any, new: Any) -> None:  # noqa: ANN401  # as above
    """Give a function another code, also behind a decorator; add one that is not there."""
    new = unwrap(new)
    if old is None:
        setattr(
            owner, name, FunctionType(new.__code__, vars(sys.modules[new.__module__]), name, new.__defaults__)
        )
        getattr(owner, name).__kwdefaults__ = new.__kwdefaults__
    elif isinstance(inner := unwrap(old), FunctionType) and inner.__code__ != new.__code__:
        inner.__code__ = new.__code__


@dataclass(slots=True)
class Verdict:
    """What became of a fault: the case that fails, or why none does, and what it took."""

    fault: Fault
    case: str = ""
    reason: str = ""
    cases: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        said = "caught    " if self.case else "NOT CAUGHT"
        found = self.case or f"{self.reason}. {self.fault.reason}"
        return f"{said} {self.fault.about}: {self.fault.name}  [{self.cases}, {self.seconds:.1f} s] {found}"


class Planter:
    """A plugin of pytest that runs the cases in forks, one for each fault, in place of running them once."""

    def __init__(self, chosen: Sequence[Fault], seconds: float) -> None:
        self.verdicts: list[Verdict] = []
        self._chosen = chosen
        self._seconds = seconds
        self._failed: list[str] = []
        self._sound: dict[str, bool] = {}

    def pytest_configure(self) -> None:
        """Let hypothesis make no failure smaller, and draw the same in every fork."""
        import hypothesis  # noqa: PLC0415  # after pytest, which prepares it

        phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
        hypothesis.settings.register_profile("faults", derandomize=True, database=None, phases=phases)
        hypothesis.settings.load_profile("faults")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure."""
        if report.failed:
            self._failed.append(report.nodeid)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try each fault."""
        for fault in self._chosen:
            begin = time.monotonic()
            verdict = self._examined(in_turn(session.items, fault), fault)
            verdict.seconds = time.monotonic() - begin
            self.verdicts.append(verdict)
            print(verdict, flush=True)  # noqa: T201  # the report
        return True

    def _examined(self, items: list[pytest.Item], fault: Fault) -> Verdict:
        verdict, end = Verdict(fault, reason="every case passes"), time.monotonic() + self._seconds
        while items:
            tried, case = self._first_failure(items, fault, end - time.monotonic())
            verdict.cases += tried
            if case is None:
                if tried < len(items):
                    verdict.reason = f"time is over, {len(items) - tried} cases are left"
                return verdict
            (item,) = (item for item in items if item.nodeid == case)
            if self._is_sound(item) and self._counts(item, fault):
                verdict.case = case.partition("::")[2].removeprefix("TestSqlite::")
                return verdict
            items = items[items.index(item) + 1 :]
        return verdict

    def _counts(self, item: pytest.Item, fault: Fault) -> bool:
        """Whether a case fails alone too; one of competing writers could do so by chance."""
        times = 2 if is_competing(item) else 1
        return all(self._first_failure([item], fault, 2 * CASE_SECONDS)[1] for _ in range(times))

    def _is_sound(self, item: pytest.Item) -> bool:
        """Whether a case passes without a fault."""
        if item.nodeid not in self._sound:
            self._sound[item.nodeid] = self._first_failure([item], None, 2 * CASE_SECONDS)[1] is None
        return self._sound[item.nodeid]

    def _first_failure(
        self, items: list[pytest.Item], fault: Fault | None, seconds: float
    ) -> tuple[int, str | None]:
        """Return how many cases a fork has run, and which one has failed or hung."""
        tried, case = 0, None
        with forked(lambda write: self._run(items, fault, write)) as reader:
            end = time.monotonic() + seconds
            for line in lines_of(reader, end):
                tried, case = line
        if case is None and tried < len(items) and time.monotonic() < end:
            raise RuntimeError(f"a fork ended at case {tried + 1} of {len(items)}: {fault}")
        return tried, case

    def _run(self, items: list[pytest.Item], fault: Fault | None, write: Callable[[object], object]) -> None:
        if fault is not None:
            plant(fault)
        signal.signal(signal.SIGALRM, hung)
        for tried, (item, following) in enumerate(zip(items, [*items[1:], None], strict=True), 1):
            signal.alarm(CASE_SECONDS)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            signal.alarm(0)
            write((tried, item.nodeid if self._failed else None))
            if self._failed:
                return


def hung(*_: object) -> None:
    """End a case that takes too long."""
    raise TimeoutError(f"the case has taken {CASE_SECONDS} s")


@contextmanager
def forked(action: Callable[[Callable[[object], object]], None]) -> Iterator[int]:
    """Run an action in a fork, which ends with the block; yield where what it writes is read, as JSON."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        try:
            action(lambda line: os.write(writer, f"{json.dumps(line)}\n".encode()))
        finally:
            os._exit(0)
    os.close(writer)
    try:
        yield reader
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)


def lines_of(reader: int, end: float) -> Iterator[Any]:
    """Yield lines of JSON until the writer is gone or the time is over."""
    rest = b""
    while select.select([reader], [], [], max(0.0, end - time.monotonic()))[0]:
        if not (found := os.read(reader, 65536)):
            return
        *lines, rest = (rest + found).split(b"\n")
        yield from map(json.loads, lines)


def in_turn(items: Sequence[pytest.Item], fault: Fault) -> list[pytest.Item]:
    """Return the cases in the order in which they are likely to find a fault soon."""
    words = ABOUT[fault.about].split("|")

    def place(item: pytest.Item) -> tuple[bool, bool, int, bool]:
        name = test_of(item).__qualname__
        first = next((number for number, word in enumerate(words) if word in name), len(words))
        return (first == len(words), is_competing(item), first, "TestAccess" not in item.nodeid)

    return sorted(items, key=place)


def is_competing(item: pytest.Item) -> bool:
    """Whether writers compete in a case."""
    return not COMPETING.isdisjoint(names_in(test_of(item).__code__))


def test_of(item: pytest.Item) -> FunctionType:
    """Return the function of a case."""
    assert isinstance(item, pytest.Function)
    test = unwrap(item.function)
    assert isinstance(test, FunctionType)
    return test


def names_in(code: CodeType) -> Iterator[str]:
    """Yield the names that a code and the codes in it use."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from names_in(inner)


def run(chosen: Sequence[Fault], *, seconds: float, kits: Sequence[str] = ()) -> list[Verdict]:
    """Collect the kit over the sample driver, and try the faults."""
    planter = Planter(chosen, seconds)
    options = [
        "-c",
        str(SAMPLE / "pyproject.toml"),
        "-p",
        "no:cacheprovider",
        "-p",
        "no:terminal",
        "-p",
        "no:xdist",
    ]
    test = f"{SAMPLE}/tests/test_sqlite.py::TestSqlite"
    with on_the_path():
        code = pytest.main([*options, *([f"{test}::{kit}" for kit in kits] or [test])], plugins=[planter])
    assert code == pytest.ExitCode.OK, f"the kit could not be collected: {code!r}"
    return planter.verdicts


@contextmanager
def on_the_path() -> Iterator[None]:
    """Let the sample be found, as if it were installed."""
    with TemporaryDirectory() as folder:
        info = Path(folder, "twinstore_sqlite-1.0.0.dist-info")
        info.mkdir()
        info.joinpath("METADATA").write_text(
            "Metadata-Version: 2.1\nName: twinstore-sqlite\nVersion: 1.0.0\n"
        )
        info.joinpath("entry_points.txt").write_text(
            "[twinstore.backends]\nsqlite = twinstore_sqlite.plugin\n"
        )
        paths = [folder, str(SAMPLE), str(SAMPLE / "tests")]
        sys.path[:0] = paths
        # Other processes that a case starts find it there.
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
        try:
            yield
        finally:
            del sys.path[: len(paths)], os.environ["PYTHONPATH"]


def main() -> int:
    """Try the faults that are asked for, and print how many of each class are caught; 1 if one is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", default=[], help="a class, or a part of a name")
    parser.add_argument("--kit", action="append", default=[], help="the cases of one kit, such as TestAccess")
    parser.add_argument("--seconds", type=float, default=600, help="how long the cases of one fault may take")
    given = parser.parse_args()
    every = faults()
    chosen = [
        item
        for item in every
        if not given.only or any(word in f"{item.about}: {item.name}" for word in given.only)
    ]
    if not chosen:
        parser.error(f"no fault matches {' or '.join(given.only)}")
    verdicts = run(chosen, seconds=given.seconds, kits=given.kit)
    for about in [*dict.fromkeys(item.about for item in chosen), ""]:
        of_class = [item for item in verdicts if about in {item.fault.about, ""}]
        caught = sum(bool(item.case) for item in of_class)
        print(f"{about or 'all':14} {caught:3} of {len(of_class)}")  # noqa: T201  # the report
    return int(any(not item.case and not item.fault.reason for item in verdicts))


if __name__ == "__main__":
    sys.exit(main())
