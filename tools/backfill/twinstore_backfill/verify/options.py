"""The options of a verification."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from typing import TYPE_CHECKING, Literal, Protocol

from twinstore.access.scope import tenant_argument
from twinstore.errors import ValidationError
from twinstore.models.fields import INT64_MAX, INT64_MIN
from twinstore_backfill.rules.model import NO_RULES, JobRules
from twinstore_backfill.subset import EVERYTHING, Subset

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from twinstore.catalog.keys import Key
    from twinstore_backfill.ignored import IgnoredPath


class RowSelection(Protocol):
    """Single rows to compare."""

    @property
    def counts(self) -> Mapping[str, int]:
        """How many there are of each entity."""
        ...

    @property
    def keyless(self) -> Mapping[str, int]:
        """How many findings of each entity have no key by which to find their row again."""
        ...

    def key_batches(self, entity: str) -> Iterator[tuple[Key, ...]]:
        """Yield the keys of an entity, some at a time."""
        ...


@dataclass(frozen=True, slots=True)
class Approval:
    """The decision to begin without old data."""

    reason: str
    approved_by: str

    def __post_init__(self) -> None:
        """Refuse one that no one answers for."""
        for name in ("reason", "approved_by"):
            object.__setattr__(self, name, getattr(self, name).strip())
        if not (self.reason and self.approved_by):
            raise ValidationError("--start-clean needs --reason TEXT and --approved-by NAME.")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """Options of a verification.

    Attributes:
        entities, tenants: what to compare; empty means all.
        mode: every document, or a sample of them.
        seed: chooses the sample; the same seed chooses the same documents.
        sample_size: documents to sample per entity, spread over the tenants.
        as_of: the instant that retention is judged by; ``None`` means the start of the run.
        jobs: how many read the digests of each side, and processes that compare rows one by one.
        engine: the URL of what lends the processes for both, in place of ``jobs`` on this host.
        range_size: documents per range.
        approval: begin without old data; the target must be empty.
        switch: the driver that the configuration names at present.
        ignored_fields: known fields that are not compared.
        rules: what the copy changed on the way, and what is accepted.
        subset: compare only a part of the rows.
        title: the name of the migration, for the report.
        only: the rows to compare, ``None`` for all rows: a recheck.
        benchmark: also measure how long the lists take.
        max_ratio: how many times as long as on the source a list may take; ``None`` for any.
        groups: by entity the logical group that reports show instead of that of its description.
        require_ready: end with a code other than 0 unless the switch may be turned.
        require_no_exceptions: the same if the verdict rests on anything that is accepted.
        resume: continue the interrupted verification of which the directory of the reports keeps a part. What
            was written to either side since is not seen.
    """

    entities: Sequence[str] = ()
    tenants: Sequence[str] = ()
    mode: Literal["full", "sample"] = "full"
    seed: int = 0
    sample_size: int = 1000
    as_of: datetime | None = None
    jobs: int = 1
    engine: str | None = None
    range_size: int = 10_000
    batch_size: int = 1000
    approval: Approval | None = None
    switch: str | None = None
    ignored_fields: tuple[IgnoredPath, ...] = ()
    rules: JobRules = NO_RULES
    subset: Subset = EVERYTHING
    title: str = ""
    only: RowSelection | None = None
    benchmark: bool = False
    max_ratio: float | None = None
    groups: Mapping[str, str] = field(default_factory=dict[str, str])
    require_ready: bool = False
    require_no_exceptions: bool = False
    resume: bool = False

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing and tenants that cannot be."""
        object.__setattr__(self, "tenants", tuple(map(tenant_argument, self.tenants)))
        numbers = {"--jobs": self.jobs, "--range-size": self.range_size, "--sample-size": self.sample_size}
        for name, value in numbers.items():
            if value < 1:
                raise ValidationError(f"{name} should be at least 1, not {value}.")
        for name, value in (numbers | {"--seed": self.seed}).items():
            if not INT64_MIN <= value <= INT64_MAX:
                raise ValidationError(f"{name} should fit into 64 bits, not be {value}.")
        if self.max_ratio is not None:
            if not self.benchmark:
                raise ValidationError("--max-ratio belongs to --benchmark; add it or leave it out.")
            # This includes NaN: every comparison with it is false.
            if not 0 < self.max_ratio < inf:
                raise ValidationError(f"--max-ratio should be a number above 0, not {self.max_ratio:g}.")
        if self.approval is not None and self.benchmark:
            raise ValidationError("--benchmark compares two sides; leave it out with --start-clean.")
        self._check_parts()

    def _check_parts(self) -> None:
        """Refuse a part where only the whole makes sense."""
        if self.approval is not None and (self.narrowed or self.mode != "full"):
            raise ValidationError(
                "--start-clean checks the whole target; leave out "
                f"{_joined_names(*self.narrowing, '--mode')}."
            )
        if self.resume and (self.approval is not None or self.only is not None or self.mode != "full"):
            raise ValidationError(
                "--resume continues a comparison of all rows; leave out --mode sample and --start-clean."
            )
        if self.subset and self.mode != "full":
            raise ValidationError(
                f"--mode sample chooses of all rows; leave it out, or {_joined_names(*self.subset.options)}."
            )

    @property
    def narrowed(self) -> bool:
        """Whether something was skipped on purpose."""
        return bool(self.narrowing) or self.only is not None

    @property
    def narrowed_rows(self) -> bool:
        """Whether parts of entities, or of their rows, are skipped on purpose."""
        return bool(self.subset or self.ignored_fields) or self.only is not None

    @property
    def narrowing(self) -> tuple[str, ...]:
        """The options that leave something out on purpose."""
        given = {
            "--entity": self.entities,
            "--tenant": self.tenants,
            "--ignore-field": self.ignored_fields,
        }
        return (*(name for name, value in given.items() if value), *self.subset.options)


def _joined_names(*names: str) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
