"""The options of a copy."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final

from twinstore.access.scope import tenant_argument
from twinstore.bulk.port import OnConflict
from twinstore.errors import ValidationError
from twinstore.models import json_text
from twinstore_backfill.rules.model import NO_RULES, DropRule, JobRules
from twinstore_backfill.rules.stored import rules_of
from twinstore_backfill.subset import EVERYTHING, Subset

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from twinstore.bulk.port import BulkPort
    from twinstore.catalog.entity import Entity
    from twinstore_backfill.stores import Store

# A range is one transaction on PostgreSQL, and what an interruption throws away.
LARGEST_RANGE: Final = 1_000_000
# One more than a range has by default, which saves a round trip to ask for another batch.
PACKED_ROWS: Final = 5001
DEFAULT_OUT: Final = Path("backfill")
# The setting of a job with the rules that it has had. They are read with the job, before each range.
APPLIED: Final = "applied_rules"
MOST_APPLIED: Final = 20
# The one with what other processes need, see `copy.description`.
DESCRIBED: Final = "described"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOptions:
    """Options of a copy.

    Attributes:
        entities, tenants: what to copy; empty means all.
        jobs: ranges copied at the same time.
        max_rate: most documents per second, ``None`` for no limit.
        max_conflicts: conflicts after which the run stops; 0 stops at the first.
        max_quarantine: quarantined documents after which the run stops, ``None`` for no limit.
        as_of: the instant that retention is judged by; ``None`` means the start of the job.
        range_size: rows per range, the unit of commit and of resuming.
        lease: how long a silent worker keeps others out.
        execute: write to the target; otherwise nothing is written.
        out: directory of the report, of the quarantine and of the conflicts.
        rules: what changes on the way, and what is accepted.
        subset: copy only a part of the rows; part of the job, so that no other copy takes it for its own.
        title: the name of the migration, for the report.
        engine: the URL of what lends processes, instead of threads and child processes of this one.
        retry_quarantine: only copy those ranges of the present job again that have quarantined documents.
    """

    entities: Sequence[str] = ()
    tenants: Sequence[str] = ()
    jobs: int = 2
    max_rate: float | None = None
    on_conflict: OnConflict = "fail"
    max_conflicts: int = 0
    max_quarantine: int | None = None
    as_of: datetime | None = None
    range_size: int = 10_000
    batch_size: int = 1000
    lease: timedelta = timedelta(seconds=30)
    execute: bool = False
    out: Path | None = None
    rules: JobRules = NO_RULES
    subset: Subset = EVERYTHING
    engine: str | None = None
    retry_quarantine: bool = False
    title: str = ""

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing and tenants that cannot be."""
        # The class is frozen; two spellings of a tenant would make two jobs.
        object.__setattr__(self, "tenants", tuple(map(tenant_argument, self.tenants)))
        at_least_one = {"--jobs": self.jobs, "--range-size": self.range_size}
        # This includes NaN: every comparison with it is false.
        if self.max_rate is not None and not 1 <= self.max_rate < inf:
            raise ValidationError(f"--max-rate should be a number of at least 1, not {self.max_rate:g}.")
        for name, value in at_least_one.items():
            if value < 1:
                raise ValidationError(f"{name} should be at least 1, not {value}.")
        for name, limit in (
            ("--max-conflicts", self.max_conflicts),
            ("--max-quarantine", self.max_quarantine),
        ):
            if limit is not None and limit < 0:
                raise ValidationError(f"{name} should be 0 or more, not {limit}.")
        if self.range_size > LARGEST_RANGE:
            raise ValidationError(f"--range-size should be at most {LARGEST_RANGE}, not {self.range_size}.")

    @property
    def saved_in(self) -> Path | None:
        """The directory of the report; a dry run has none by default."""
        return self.out or (DEFAULT_OUT if self.execute else None)

    @property
    def rows_per_batch(self) -> int:
        """How many rows are read at a time: at a limited rate at most those of one second.

        A worker waits under the limit for a whole batch at once; meanwhile a server may close the cursor, and
        the progress stays the same.
        """
        return self.batch_size if self.max_rate is None else min(self.batch_size, int(self.max_rate))

    @property
    def rows_per_packed_batch(self) -> int:
        """The same of packed rows, which take little memory and are written by thousands."""
        return PACKED_ROWS if self.max_rate is None else self.rows_per_batch


def job_settings(
    options: CopyOptions, source: Store, target: Store, entities: Sequence[Entity]
) -> Mapping[str, str]:
    """Return what makes two runs the same job: the identities of both stores, and the selection."""
    return _settings(options, source, (source.bulk.identity, target.bulk.identity), entities)


def released_settings(
    options: CopyOptions, source: Store, target: Store, entities: Sequence[Entity]
) -> Mapping[str, str]:
    """Return the same in the form of 0.1.0, which identified stores by driver, host and database."""
    return _settings(options, source, (source.bulk.place, target.bulk.place), entities)


def dropping_settings(
    options: CopyOptions, source: Store, target: Store, entities: Sequence[Entity]
) -> Mapping[str, str]:
    """Return the same in the form of development versions that made dropped properties a part of the job."""
    paths = [".".join((rule.entity, *rule.path)) for rule in options.rules if isinstance(rule, DropRule)]
    settings = job_settings(options, source, target, entities)
    return {**settings, "ignore_unknown": json_text.dumps(sorted(paths)).decode()} if paths else settings


def _settings(
    options: CopyOptions, source: Store, sides: tuple[str, str], entities: Sequence[Entity]
) -> Mapping[str, str]:
    settings = {
        "module": source.module,
        "source": sides[0],
        "target": sides[1],
        "entities": ",".join(entity.name for entity in entities),
        # As JSON, because a tenant id may contain a comma.
        "tenants": json_text.dumps(sorted(set(options.tenants))).decode(),
    }
    if options.subset:
        settings["subset"] = json_text.dumps_sorted(options.subset.document(entities)).decode()
    if options.as_of is not None:
        settings["as_of"] = json_text.format_timestamp(options.as_of)
    return settings


def with_notes(
    settings: Mapping[str, str],
    source: BulkPort,
    target: BulkPort,
    rules: JobRules,
    before: Mapping[str, str] | None,
) -> Mapping[str, str]:
    """Return the settings of a job with what people call its stores, and its rules; neither makes its id.

    ``before`` are the settings that it had, ``None`` for a new one.
    """
    notes = {"source_place": source.place, "target_place": target.place}
    if rules:
        notes["rules"] = json_text.dumps([f"{rule.kind.value} {rule.text}" for rule in rules]).decode()
    present = json.loads(json_text.dumps(rules.documents()))
    earlier = [] if before is None else json.loads(before.get(APPLIED, "[[]]"))
    if any(applied := [*(item for item in earlier if item != present), present]):
        notes[APPLIED] = json_text.dumps(applied[-MOST_APPLIED:]).decode()
    return {**settings, **notes}


def applied_rules(settings: Mapping[str, str]) -> Sequence[JobRules]:
    """Return the rules under which a job has copied, the last ones last."""
    return [rules_of(item) for item in json.loads(settings.get(APPLIED, "[[]]"))]


def shown_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a job without what only processes read.

    The texts of its rules may be those of stored values.
    """
    return {name: value for name, value in settings.items() if name not in {APPLIED, DESCRIBED}}


def job_id(settings: Mapping[str, str]) -> str:
    """Return the id of the job; it depends on nothing but its settings."""
    # From the settings alone, so that the same command on any host finds the same job.
    return f"copy_{sha256(json_text.dumps_sorted(dict(settings))).hexdigest()[:32]}"
