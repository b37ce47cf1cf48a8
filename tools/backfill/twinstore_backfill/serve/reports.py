"""Parity reports of some directories, without anything that comes from a document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from twinstore.errors import ValidationError
from twinstore_backfill.report.model import parse_report
from twinstore_backfill.report.texts import shares_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

FORMAT: Final = "twinstore.reports@1"
FILE: Final = "parity-report.json"
MOST_REPORTS: Final = 100
LARGEST: Final = 64_000_000
SIDE: Final = {"backend", "place"}
# Of a report: numbers, and names that its module and its rules have.
PUBLIC: Final[Any] = {
    **dict.fromkeys(("module", "mode", "verdict", "exit_code", "cutover_ready", "approved_exceptions"), True),
    "envelope": {"generated_at", "seconds", "trend"},
    "source": SIDE,
    "target": SIDE,
    "checks": {"__all__": {"id", "title", "result", "count"}},
    "causes": {"__all__": {"entity", "kind", "cause", "documents", "approved"}},
    "entities": {"__all__": {"entity", "result", "counts"}},
}


class ReportReader:
    """Reads the reports of directories and of those directly in them; a file again only if it changed."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._directories = directories
        self._read: dict[Path, tuple[tuple[int, int], dict[str, Any]]] = {}

    def document(self) -> dict[str, Any]:
        """Return the reports, the latest first, and the files that are none."""
        found = [self._entry(*place) for place in self._places()]
        reports = [entry for entry in found if "problem" not in entry]
        reports.sort(key=lambda entry: str(entry["envelope"]["generated_at"]), reverse=True)
        return {
            "format": FORMAT,
            "reports": reports[:MOST_REPORTS],
            "unreadable": [entry for entry in found if "problem" in entry],
        }

    def _places(self) -> Iterator[tuple[Path, Path]]:
        for directory in self._directories:
            for path in (directory / FILE, *sorted(directory.glob(f"*/{FILE}"))):
                if path.is_symlink() or path.exists():
                    yield directory, path

    def _entry(self, directory: Path, path: Path) -> dict[str, Any]:
        name = str(path.parent)
        try:
            # A link may lead anywhere.
            if not path.resolve().is_relative_to(directory.resolve()):
                return {"report": name, "problem": "leads out of the directory"}
            state = path.stat()
            # A pipe would never end.
            if not path.is_file():
                return {"report": name, "problem": "not a file"}
            changed = (state.st_mtime_ns, state.st_size)
            known = self._read.get(path)
            if known is None or known[0] != changed:
                content = None if state.st_size > LARGEST else path.read_bytes()
                self._read[path] = known = changed, _public(content)
        except OSError:
            return {"report": name, "problem": "cannot be read"}
        return {"report": name, **known[1]}


def _public(content: bytes | None) -> dict[str, Any]:
    if content is None:
        return {"problem": f"larger than {LARGEST:,} bytes"}
    try:
        report = parse_report(content, FILE)
    except ValidationError:
        # Not why: it may be anything, and its content is not shown.
        return {"problem": "not a parity report of this format"}
    return {**report.model_dump(mode="json", include=PUBLIC), "documents": shares_of(report)}
