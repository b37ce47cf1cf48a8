"""The content of the directory of --out when a command fails: the reason, and no files of an earlier run."""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Self
from xml.etree import ElementTree as ET

from twinstore.errors import TwinstoreError
from twinstore.models import json_text
from twinstore_backfill.outcome import Exit, exit_code
from twinstore_backfill.process.files import require_writable, wrap_write_errors, write_atomic
from twinstore_backfill.process.secrets import REDACTOR
from twinstore_backfill.report.texts import xml_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

STATES: Final = {
    Exit.INTERRUPTED: "interrupted",
    Exit.TERMINATED: "interrupted",
    Exit.PREFLIGHT_REFUSED: "refused",
}


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a command has no result, as its exit code and its message say."""

    code: str
    message: str
    exit_code: int
    state: str

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """Return what an error amounts to."""
        # Raised by Python itself, where no command stops at a safe point.
        number = Exit.INTERRUPTED if isinstance(error, KeyboardInterrupt) else exit_code(error)
        state = STATES.get(Exit(number), "failed")
        if isinstance(error, TwinstoreError):
            return cls(error.code, REDACTOR.clean(error.message), int(number), state)
        if isinstance(error, KeyboardInterrupt):
            return cls("interrupted", "Interrupted.", int(number), state)
        return cls("unexpected", f"unexpected {type(error).__name__}", int(number), state)

    @property
    def next_step(self) -> str:
        """What to do, in one sentence."""
        return f"Do what the message says, then repeat the command (exit code {self.exit_code})."

    def document(self) -> dict[str, object]:
        """Return what a program reads of it."""
        return {
            "state": self.state,
            "exit_code": self.exit_code,
            "error": {"code": self.code, "message": self.message},
        }


@contextmanager
def report_failures(
    out: Path | None,
    stale: Sequence[str] = (),
    render: Callable[[Failure], Mapping[str, bytes]] | None = None,
) -> Iterator[None]:
    """Make the directory of --out and keep its files in line with how the command ends.

    The files of an earlier run are removed first. When the command fails, what it wrote of them is removed
    as well and other files say why; a wrong command line (exit code 2) leaves no file. A directory that was
    made and is empty then is removed.

    Args:
        out: the directory, ``None`` for none.
        stale: the names of the files that a run writes.
        render: returns the content of the files that say why, by name.

    Raises:
        ConfigurationError: nothing can be written to the directory.
    """
    if out is None:
        yield
        return
    # A name that is too long is refused below.
    made = [path for path in (out, *out.parents) if not os.path.exists(path)]  # noqa: PTH110  # raises nothing
    try:
        require_writable(out)
        with wrap_write_errors(out):
            _remove(out, stale)
        yield
    except BaseException as error:
        failure = Failure.of(error)
        # A directory that takes no file is what failed, or the disk is full; the exit code says so.
        with suppress(OSError):
            _remove(out, stale)
            if render is not None and failure.exit_code != Exit.USAGE:
                for name, content in render(failure).items():
                    write_atomic(out / name, content)
        _remove_empty(made)
        raise


def _remove(directory: Path, names: Iterable[str]) -> None:
    for name in names:
        (directory / name).unlink(missing_ok=True)


def _remove_empty(directories: Iterable[Path]) -> None:
    """Remove directories, the deepest first, until one holds something."""
    with suppress(OSError):
        for directory in directories:
            directory.rmdir()


def junit_failure(name: str, failure: Failure) -> bytes:
    """Return JUnit XML with one case, which is an error, so that no pipeline takes a failure for nothing."""
    counts = {"tests": "1", "failures": "0", "errors": "1", "skipped": "0"}
    now = json_text.format_timestamp(datetime.now(UTC)).removesuffix("+00:00")
    where = {"timestamp": now, "hostname": socket.gethostname()}
    root = ET.Element("testsuites", {"name": f"{name}: {failure.state}", **counts})
    suite = ET.SubElement(root, "testsuite", {"name": name, **counts, **where})
    properties = ET.SubElement(suite, "properties")
    ET.SubElement(properties, "property", name="exit_code", value=str(failure.exit_code))
    case = ET.SubElement(suite, "testcase", classname=name, name="result")
    problem = ET.SubElement(case, "error", message=xml_text(failure.message), type=failure.code)
    problem.text = xml_text(f"{failure.message}\nexit code {failure.exit_code}")
    ET.indent(root)
    content: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return content + b"\n"
