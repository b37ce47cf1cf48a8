"""The rows that a file of differences names, kept on disk: they may be as many as the rows of a store."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, Final

from twinstore.errors import ValidationError
from twinstore_backfill.report.model import parse_report
from twinstore_backfill.report.writing import DIFFERENCES
from twinstore_backfill.stores import select_entities
from twinstore_backfill.verify.findings import FindingKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from twinstore.catalog import Entity
    from twinstore.keys import Key
    from twinstore_backfill.stores import Store

__all__ = ["GivenDifferences", "NamedRows", "given_differences", "named_rows", "no_rows"]

REPORT: Final = "parity-report.json"
# Rows of one transaction or one task, all of them in memory.
ROWS_AT_ONCE: Final = 100


class NamedRows:
    """Keys by entity.

    Attributes:
        to_copy: by entity, how many rows a copy of the source row may put right.
        to_remove: by entity, how many rows the source does not have.
        keyless: by entity, how many findings have no key by which to find their row again.
    """

    def __init__(self, entities: Iterable[Entity], spool: IO[bytes]) -> None:
        """Take the entities that may be named, and an empty file for the findings."""
        self.to_copy: Counter[str] = Counter()
        self.to_remove: Counter[str] = Counter()
        self.keyless: Counter[str] = Counter()
        self._known = {entity.name: entity for entity in entities}
        self._spool = spool

    def take(self, lines: Iterable[bytes], place: str = "the verification") -> None:
        """Take findings as lines.

        Raises:
            ValidationError: a line is no finding of one of the entities.
        """
        for number, line in enumerate(lines, 1):
            entity, key, kind = self._finding(line, f"{place}, line {number}")
            counts = self.to_remove if kind is FindingKind.EXTRA else self.to_copy
            (self.keyless if key is None else counts)[entity] += 1
            self._spool.write(line)

    def take_extra(self, lines: Iterable[bytes]) -> None:
        """Take of a verification the rows that only the target has."""
        self.take(line for line in lines if json.loads(line)["kind"] == FindingKind.EXTRA)

    @property
    def counts(self) -> Mapping[str, int]:
        """How many rows of each entity can be found again."""
        return self.to_copy + self.to_remove

    def portions(self, entity: str, *kinds: FindingKind) -> Iterator[tuple[Key, ...]]:
        """Yield the keys of an entity, some at a time, in the order of the file; of some kinds or of all."""
        found = self._keys(entity, kinds or tuple(FindingKind))
        while some := tuple(islice(found, ROWS_AT_ONCE)):
            yield some

    def _keys(self, entity: str, kinds: tuple[FindingKind, ...]) -> Iterator[Key]:
        self._spool.seek(0)
        for line in self._spool:
            name, key, kind = self._finding(line, "a finding")
            if name == entity and kind in kinds and key is not None:
                yield key

    def _finding(self, line: bytes, place: str) -> tuple[str, Key | None, FindingKind]:
        try:
            item: dict[str, Any] = json.loads(line)
            entity, kind = self._known[item["entity"]], FindingKind(item["kind"])
            key = None if item["key"] is None else tuple(item["key"])
        except (ValueError, KeyError, TypeError):
            raise ValidationError(
                f"{place} is no finding of this module; give the {DIFFERENCES} of a verification as it is."
            ) from None
        if key is not None and not entity.admits_key(key):
            raise ValidationError(f"{place}: the key is none of {entity.name}; give the file as it is.")
        return entity.name, key, kind


@contextmanager
def no_rows(entities: Iterable[Entity]) -> Iterator[NamedRows]:
    """Yield a list that names nothing yet."""
    # Without a name on disk: it holds keys, and is gone whatever happens.
    with TemporaryFile() as spool:
        yield NamedRows(entities, spool)


@dataclass(frozen=True, slots=True)
class GivenDifferences:
    """What a verification left, read before a new report takes its place.

    Attributes:
        name: where it was read.
        lines: its findings.
        report: the report beside them, if there is one.
    """

    name: str
    lines: IO[bytes]
    report: bytes | None


@contextmanager
def given_differences(path: Path) -> Iterator[GivenDifferences]:
    """Read ``differences.ndjson``, or the one in a directory.

    Raises:
        ValidationError: it cannot be read.
    """
    file = path / DIFFERENCES if path.is_dir() else path
    report = file.with_name(REPORT)
    with TemporaryFile() as spool:
        try:
            with file.open("rb") as lines:
                copyfileobj(lines, spool)
            beside = report.read_bytes() if report.exists() else None
        except OSError as error:
            advice = "Name with --in the --out directory of a verification."
            raise ValidationError(f"{file} cannot be read: {error.strerror}. {advice}") from error
        spool.seek(0)
        yield GivenDifferences(str(file), spool, beside)


@contextmanager
def named_rows(given: GivenDifferences, source: Store, target: Store) -> Iterator[NamedRows]:
    """Yield the rows that the differences of these stores name.

    Raises:
        ValidationError: they are of other stores, or a line is no finding of this module.
    """
    _require_same_stores(given, source, target)
    with no_rows(select_entities(source.bulk, ())) as rows:
        rows.take(given.lines, given.name)
        yield rows


def _require_same_stores(given: GivenDifferences, source: Store, target: Store) -> None:
    # Without a report beside them nothing tells; the exact comparison afterwards does.
    if given.report is None:
        return
    before = parse_report(given.report, REPORT)
    for name, side, store in (("source", before.source, source), ("target", before.target, target)):
        if side.identity != store.bulk.identity:
            raise ValidationError(
                f"{given.name} is of another {name}: {side.place or side.identity}, not {store.bulk.place}. "
                "Name the stores that were verified."
            )
