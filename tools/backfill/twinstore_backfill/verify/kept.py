"""The file by which a verification of many ranges is continued: what is decided, in the directory of --out.

    what is compared, when that began, and the rows that both sides counted
    for each result a line, and one for each of its findings
    after some thousand ranges a mark: how far this is, sealed with the SHA-256 of everything before

Whatever follows the last mark is ignored. The file has what reports show, and neither the keyed digests that
prove a range nor their key.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import datetime
from hashlib import sha256
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, Final, TypeAlias

from typing_extensions import override

from twinstore.catalog.keys import Key, KeyRange
from twinstore_backfill.alike import RELEASE, digest_of
from twinstore_backfill.outcome import PreflightError
from twinstore_backfill.process.files import PRIVATE, fsync, sync_directory
from twinstore_backfill.retention import age_limit
from twinstore_backfill.verify.context import Task
from twinstore_backfill.verify.findings import RangeResult, RowFinding, Shares, TenantResult, copies_into
from twinstore_backfill.verify.set_digest import Digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from twinstore.catalog.entity import Entity
    from twinstore_backfill.stores import Store
    from twinstore_backfill.verify.context import VerifyContext
    from twinstore_backfill.verify.options import VerifyOptions
    from twinstore_backfill.verify.ranges import RowCounts

FILE: Final = "verification.progress"
FORMAT: Final = 1
MARK: Final = b'{"mark":'
SEAL: Final = b',"sha256":'
AGAIN: Final = "The comparison itself wrote nothing; run the same command again."
CONTINUE: Final = (
    "The comparison itself wrote nothing. `twinstore backfill verify --resume` with the same options "
    "continues it if nothing is written to either side until then; otherwise run the same command again."
)
Counts: TypeAlias = "Mapping[str, Mapping[str, RowCounts]]"


@dataclass(frozen=True, slots=True)
class Mark(Task["Mark"]):
    """A place among the tasks; when its turn comes, everything before it is decided.

    Attributes:
        entity, tenant: whose rows were compared last.
        upper: the key before which they were; ``None``: all of them.
        without: why no digests were used, by entity.
        rows: how many rows of the source were compared.
        largest: the size of the largest document in bytes.
    """

    entity: str
    tenant: str | None
    upper: Key | None
    without: Mapping[str, str]
    rows: int = 0
    largest: int = 0

    @property
    @override
    def is_local(self) -> bool:
        return True

    @override
    def run(self, context: VerifyContext) -> Mark:
        return self


@dataclass(frozen=True, slots=True)
class Earlier:
    """The decided part of a verification that was interrupted.

    Attributes:
        path: its file, of which ``size`` bytes count.
        begun: when it began, by the clock of the source.
        as_of: the instant that retention is judged by.
        counted: the rows that both sides had when it began.
        mark: how far it came.
        seal: how its mark ends.
    """

    path: Path
    size: int
    begun: datetime
    as_of: datetime
    counted: Counts
    mark: Mark
    seal: bytes

    def check(self, context: VerifyContext, counted: Counts) -> None:
        """Refuse to continue it if rows were added or removed; retention may remove some at any time."""
        for name, tenants in counted.items():
            before, falls = self.counted[name], context.removals(context.entity(name)).possible
            for label in tenants.keys() | before.keys():
                pairs = zip(before.get(label, (0, 0)), tenants.get(label, (0, 0)), strict=True)
                if any(now > then or (now < then and not falls) for then, now in pairs):
                    raise refusal(self.path, f"rows of {name} were added or removed since")

    def results(self) -> Iterator[RangeResult]:
        """Yield what is decided."""
        with self.path.open("rb") as file:
            file.readline()
            while file.tell() < self.size:
                line = file.readline()
                if not line.startswith(MARK):
                    yield result_of(line, file)


def refusal(path: Path, reason: str) -> PreflightError:
    """Return the error of a verification that cannot be continued."""
    return PreflightError(
        f"The verification in {path} cannot be continued: {reason}. Run the same command without --resume."
    )


def earlier_in(path: Path, described: Mapping[str, str]) -> Earlier:
    """Return what a file keeps up to its last mark.

    Raises:
        PreflightError: there is no such file, it has no mark, or it is of another verification.
    """
    size, digest = 0, sha256()
    marked: tuple[Mark, int, bytes] | None = None
    try:
        with path.open("rb") as file:
            header = file.readline()
            file.seek(0)
            for line in file:
                body, _, seal = line.rpartition(SEAL) if line.startswith(MARK) else (line, b"", b"")
                digest.update(body)
                size += len(line)
                if seal:
                    if seal != sealed(digest.hexdigest()):
                        break
                    entity, tenant, upper, without, *numbers = json.loads(line)["mark"]
                    mark = Mark(entity, tenant, key_of(upper), dict(without), *numbers)
                    marked, digest = (mark, size, seal), sha256(seal)
    except OSError as error:
        raise refusal(path, f"it cannot be read ({error.strerror})") from error
    if marked is None:
        raise refusal(path, "no part of it is finished")
    mark, size, seal = marked
    first = json.loads(header)
    for name, value in described.items():
        if first["described"].get(name) != value:
            raise refusal(path, f"it began with {name}")
    begun, as_of = map(datetime.fromisoformat, (first["begun"], first["as_of"]))
    counted = {
        name: {label: (source, target) for label, (source, target) in rows.items()}
        for name, rows in first["counted"].items()
    }
    return Earlier(path, size, begun, as_of, counted, mark, seal)


def sealed(digits: str) -> bytes:
    """Return how a mark ends; the next part begins with that, so that none can be missing."""
    return f'"{digits}"}}\n'.encode()


class KeptResults(AbstractContextManager["KeptResults"]):
    """Keeps what a verification decides.

    Attributes:
        earlier: the one that it continues.
        rows: how many rows of the source were compared.
        advice: what to do if it is interrupted.
    """

    def __init__(
        self,
        path: Path | None = None,
        describe: Callable[[], Mapping[str, str]] = dict,
        earlier: Earlier | None = None,
    ) -> None:
        """Take the file (``None``: nothing is kept), what is compared, and what it has already."""
        self._path, self._describe, self.earlier = path, describe, earlier
        self._stack = ExitStack()
        self._file: IO[bytes] | None = None
        self.rows, self._largest = (earlier.mark.rows, earlier.mark.largest) if earlier else (0, 0)
        self._digest = sha256(earlier.seal if earlier else b"")
        self.advice = CONTINUE if earlier else AGAIN

    def begin(self, context: VerifyContext, counted: Counts, *, is_long: bool) -> Counts:
        """Begin to keep results, of a long verification only; return the rows that were counted at first.

        Raises:
            PreflightError: both sides do not have the same rows as then.
        """
        if self._path is None:
            return counted
        if self.earlier is not None:
            self.earlier.check(context, counted)
            self._file = self._stack.enter_context(self._path.open("r+b"))
            # What follows there, if this run writes less, has no seal that fits.
            self._file.seek(self.earlier.size)
            return self.earlier.counted
        if is_long:
            since = context.since or context.as_of
            first = {
                "begun": since.isoformat(),
                "as_of": context.as_of.isoformat(),
                "described": self._describe(),
                "counted": counted,
            }
            self._path.touch(PRIVATE)
            self._file = self._stack.enter_context(self._path.open("wb"))
            self._write(self._file, [line_of(first)])
            sync_directory(self._path.parent)
        return counted

    def add(self, result: RangeResult | Mark) -> None:
        """Keep the result that follows; at a mark for good."""
        if self._file is None:
            return
        if isinstance(result, RangeResult):
            self.rows += result.rows
            self._largest = max(self._largest, result.largest)
            self._write(self._file, lines_of(result))
            return
        mark = replace(result, rows=self.rows, largest=self._largest)
        self._write(self._file, [line_of({"mark": plain(mark)})[:-2]])
        seal = sealed(self._digest.hexdigest())
        self._file.write(SEAL + seal)
        fsync(self._file)
        self._digest, self.advice = sha256(seal), CONTINUE

    def _write(self, file: IO[bytes], lines: Iterable[bytes]) -> None:
        for line in lines:
            self._digest.update(line)
            file.write(line)

    @override
    def __exit__(self, *_: object) -> None:
        """Close the file; it stays until there is a report."""
        self._stack.close()


def description(
    options: VerifyOptions, source: Store, target: Store, entities: Sequence[Entity]
) -> dict[str, str]:
    """Return by name digests of everything that decides what a verification finds."""
    said = {
        "another release of twinstore": (FORMAT, RELEASE),
        "another module": target.module,
        "another source": source.bulk.identity,
        "another target": target.bulk.identity,
        "another --entity": [entity.name for entity in entities],
        "another --tenant": sorted(set(options.tenants)),
        "another --range-size": options.range_size,
        "another --as-of": options.as_of,
        "another part of the rows": options.subset.document(entities),
        "another --ignore-field": sorted(item.text for item in options.ignored_fields),
        "other rules": [(rule.number, rule.reason, rule.document()) for rule in options.rules],
        "another description of an entity": digest_of(entities),
        "another retention of the target": [age_limit(entity, target.options) for entity in entities],
        "another state of the copies in the target": _copies(target),
    }
    return {name: sha256(repr(value).encode()).hexdigest() for name, value in said.items()}


def _copies(target: Store) -> list[tuple[str, int, str]]:
    try:
        return sorted((job.id, job.generation, job.state.value) for job in copies_into(target))
    # Its ledger is of an earlier release, which matters only where rows are missing.
    except PreflightError:
        return []


# A result as lines of JSON in ASCII, which hold every key.


def lines_of(result: RangeResult) -> Iterator[bytes]:
    """Yield a result as lines: its totals, then its findings."""
    yield line_of([len(result.findings.lines), *plain(result)])
    yield from result.findings.lines


def result_of(line: bytes, findings: Iterable[bytes]) -> RangeResult:
    """Return the result of its first line, and of what follows it."""
    count, entity, tenant, within, *digests, proved, is_range, tenants, largest, shares = json.loads(line)
    result = RangeResult(entity, tenant, range_of(within), is_range=is_range)
    result.source, result.target = (Digest(*digest) for digest in digests)
    result.proved = [(range_of(part), Digest(*digest)) for part, digest in proved]
    result.largest, result.shares = largest, Shares(*shares)
    for label, (of_source, of_target, *counters) in tenants:
        counts = (Counter(dict(pairs)) for pairs in counters)
        result.tenants[label] = TenantResult(Digest(*of_source), Digest(*of_target), *counts)
    for finding in islice(findings, count):
        result.findings.add(entity, RowFinding.of_line(finding))
    return result


def plain(value: Any) -> Any:  # noqa: ANN401  # JSON
    """Return a part of a result for JSON: the fields of an object in order, and a mapping as pairs."""
    if is_dataclass(value):
        return [plain(getattr(value, item.name)) for item in fields(value) if item.name != "findings"]
    if isinstance(value, dict):
        # Names of a JSON object are texts, and rules have numbers.
        return [(name, plain(item)) for name, item in value.items()]
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def key_of(parts: list[str | int] | None) -> Key | None:
    """Return a key of its JSON."""
    return None if parts is None else tuple(parts)


def range_of(ends: list[Any]) -> KeyRange:
    """Return a range of its JSON."""
    return KeyRange(*map(key_of, ends))


def line_of(value: object) -> bytes:
    """Return a value as a line of JSON."""
    return f"{json.dumps(value, separators=(',', ':'))}\n".encode()
