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
from dataclasses import astuple, dataclass
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
    """A place among the tasks, before which everything is decided when it is its turn.

    Attributes:
        entity, tenant: whose rows were compared last.
        upper: the key before which they were; ``None``: all of them.
        without: why no digests were used, by entity.
    """

    entity: str
    tenant: str | None
    upper: Key | None
    without: Mapping[str, str]

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
        path: its file.
        begun: when it began, by the clock of the source.
        as_of: the instant that retention is judged by.
        described: what it compares.
        counted: the rows that both sides had when it began.
        mark: how far it came.
        rows: how many rows of the source it compared.
        largest: the size of the largest document until there, in bytes.
        size: how many bytes of the file count.
        seal: how its mark ends.
    """

    path: Path
    begun: datetime
    as_of: datetime
    described: Mapping[str, str]
    counted: Counts
    mark: Mark
    rows: int
    largest: int
    size: int
    seal: bytes

    def refusal(self, reason: str) -> PreflightError:
        """Return the error of one that cannot be continued."""
        return refusal(self.path, reason)

    def check(self, described: Mapping[str, str]) -> None:
        """Refuse to continue it as another one."""
        for name, value in described.items():
            if self.described.get(name) != value:
                raise self.refusal(f"it began with {name}")

    def check_counts(self, context: VerifyContext, counted: Counts) -> None:
        """Refuse to continue it after a change of rows; retention may remove some at any time."""
        for name, tenants in counted.items():
            before, falls = self.counted[name], context.removals(context.entity(name)).possible
            for label in tenants.keys() | before.keys():
                pairs = zip(before.get(label, (0, 0)), tenants.get(label, (0, 0)), strict=True)
                if any(now > then or (now < then and not falls) for then, now in pairs):
                    raise self.refusal(f"rows of {name} were added or removed since")


def refusal(path: Path, reason: str) -> PreflightError:
    """Return the error of a verification that cannot be continued."""
    return PreflightError(
        f"The verification in {path} cannot be continued: {reason}. Run the same command without --resume."
    )


def earlier_in(path: Path) -> Earlier:
    """Return what a file keeps up to its last mark.

    Raises:
        PreflightError: there is no such file, or it has no mark.
    """
    size, digest = 0, sha256()
    marked: tuple[Any, int, bytes] | None = None
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
                    marked, digest = (json.loads(line)["mark"], size, seal), sha256(seal)
    except OSError as error:
        raise refusal(path, f"it cannot be read ({error.strerror})") from error
    if marked is None:
        raise refusal(path, "no part of it is finished")
    (entity, tenant, upper, without, rows, largest), size, seal = marked
    mark = Mark(entity, tenant, key_of(upper), without)
    first = json.loads(header)
    begun, as_of = map(datetime.fromisoformat, (first["begun"], first["as_of"]))
    counted = {
        name: {label: (source, target) for label, (source, target) in tenants.items()}
        for name, tenants in first["counted"].items()
    }
    return Earlier(path, begun, as_of, first["described"], counted, mark, rows, largest, size, seal)


def sealed(digits: str) -> bytes:
    """Return how a mark ends; the next part begins with that, so that none can be missing."""
    return f'"{digits}"}}\n'.encode()


class KeptResults(AbstractContextManager["KeptResults"]):
    """Keeps what a verification of many ranges decides, and has what the one decided that it continues.

    Attributes:
        earlier: the one that it continues.
        rows: how many rows of the source were compared.
        advice: what to do if it is interrupted.
    """

    def __init__(
        self,
        directory: Path | None = None,
        describe: Callable[[], Mapping[str, str]] = dict,
        *,
        resume: bool = False,
    ) -> None:
        """Take where to keep them (``None``: nowhere), and what is compared.

        Raises:
            PreflightError: there is nothing to continue, or it compares something else.
        """
        self._path = None if directory is None else directory / FILE
        self._describe = describe
        self._stack = ExitStack()
        self._file: IO[bytes] | None = None
        self._digest, self.rows, self._largest = sha256(), 0, 0
        self.earlier: Earlier | None = None
        self.advice = AGAIN
        if resume and self._path is not None:
            self.earlier = earlier = earlier_in(self._path)
            earlier.check(describe())
            self._digest, self.rows, self._largest = sha256(earlier.seal), earlier.rows, earlier.largest
            self.advice = CONTINUE

    def begin(self, context: VerifyContext, counted: Counts, *, is_long: bool) -> Counts:
        """Begin to keep results, of a long verification only; return the rows that were counted at first.

        Raises:
            PreflightError: both sides do not have the same rows as then.
        """
        if self._path is None:
            return counted
        if self.earlier is not None:
            self.earlier.check_counts(context, counted)
            self._file = self._stack.enter_context(self._path.open("r+b"))
            self._file.truncate(self.earlier.size)
            self._file.seek(self.earlier.size)
            return self.earlier.counted
        self._path.unlink(missing_ok=True)
        if is_long:
            first = {
                "begun": (context.since or context.as_of).isoformat(),
                "as_of": context.as_of.isoformat(),
                "described": self._describe(),
                "counted": counted,
            }
            self._path.touch(PRIVATE)
            self._file = self._stack.enter_context(self._path.open("wb"))
            self._write(self._file, [line_of(first)])
            sync_directory(self._path.parent)
        return counted

    def results(self) -> Iterator[RangeResult]:
        """Yield what is decided already."""
        if self.earlier is None:
            return
        with self.earlier.path.open("rb") as file:
            file.readline()
            while file.tell() < self.earlier.size:
                line = file.readline()
                if not line.startswith(MARK):
                    yield result_of(line, file)

    def add(self, result: RangeResult | Mark) -> None:
        """Keep the result that follows; at a mark for good."""
        if self._file is None:
            return
        if isinstance(result, RangeResult):
            self.rows += result.rows
            self._largest = max(self._largest, result.largest)
            self._write(self._file, lines_of(result))
            return
        mark = [result.entity, result.tenant, result.upper, result.without, self.rows, self._largest]
        self._write(self._file, [line_of({"mark": mark})[:-2]])
        seal = sealed(self._digest.hexdigest())
        self._file.write(SEAL + seal)
        fsync(self._file)
        self._digest = sha256(seal)
        self.advice = CONTINUE

    def _write(self, file: IO[bytes], lines: Iterable[bytes]) -> None:
        for line in lines:
            self._digest.update(line)
            file.write(line)

    @override
    def __exit__(self, *_: object) -> None:
        """Close the file; it stays until there is a report."""
        self._stack.close()


def forget(directory: Path) -> None:
    """Remove what is kept of a verification whose report is written."""
    (directory / FILE).unlink(missing_ok=True)


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
        "another state of the copies in the target": sorted(
            (job.id, job.generation, job.state.value) for job in copies_into(target)
        ),
    }
    return {name: sha256(repr(value).encode()).hexdigest() for name, value in said.items()}


# A result as lines. In ASCII, which holds every key.


def lines_of(result: RangeResult) -> Iterator[bytes]:
    """Yield a result as lines: its totals, then its findings."""
    yield line_of(
        {
            "entity": result.entity,
            "tenant": result.tenant,
            "within": astuple(result.within),
            "source": astuple(result.source),
            "target": astuple(result.target),
            "proved": [(*astuple(within), *astuple(digest)) for within, digest in result.proved],
            "is_range": result.is_range,
            "tenants": {label: _parts(part) for label, part in result.tenants.items()},
            "largest": result.largest,
            "shares": astuple(result.shares),
            "findings": len(result.findings.lines),
        }
    )
    yield from result.findings.lines


def result_of(line: bytes, findings: Iterable[bytes]) -> RangeResult:
    """Return the result of its first line, and of what follows it."""
    said = json.loads(line)
    result = RangeResult(
        entity=said["entity"],
        tenant=said["tenant"],
        within=KeyRange(*map(key_of, said["within"])),
        source=Digest(*said["source"]),
        target=Digest(*said["target"]),
        proved=[
            (KeyRange(key_of(lower), key_of(upper)), Digest(*digest))
            for lower, upper, *digest in said["proved"]
        ],
        is_range=said["is_range"],
        largest=said["largest"],
        shares=Shares(*said["shares"]),
    )
    for label, (source, target, *counters) in said["tenants"].items():
        counts, equivalences, rules, accepted = (Counter(dict(pairs)) for pairs in counters)
        result.tenants[label] = TenantResult(
            Digest(*source), Digest(*target), counts, equivalences, rules, accepted
        )
    for finding in islice(findings, said["findings"]):
        result.findings.add(result.entity, RowFinding.of_line(finding))
    return result


def _parts(part: TenantResult) -> list[Any]:
    # As pairs: the names of a JSON object are texts, and rules have numbers.
    counters = (part.counts, part.equivalences, part.rules, part.accepted)
    return [astuple(part.source), astuple(part.target), *([*found.items()] for found in counters)]


def key_of(parts: list[str | int] | None) -> Key | None:
    """Return a key of its JSON."""
    return None if parts is None else tuple(parts)


def line_of(value: object) -> bytes:
    """Return a value as a line of JSON."""
    return f"{json.dumps(value, separators=(',', ':'))}\n".encode()
