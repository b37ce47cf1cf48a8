"""The context that the parts of a verification share, in any process."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, TypeVar

from twinstore_backfill.ignored import IgnoredPath, of_entity
from twinstore_backfill.retention import age_limit, cutoff
from twinstore_backfill.rules.model import NO_RULES, DropRule, JobRules
from twinstore_backfill.subset import EVERYTHING, Subset
from twinstore_backfill.verify.findings import QuarantineLookup
from twinstore_backfill.verify.ranges import RangeComparison, Removals, ServerTime, ServerTtls
from twinstore_backfill.verify.rules import moves_tenants, verifier_changes

if TYPE_CHECKING:
    from twinstore.catalog.entity import Entity
    from twinstore_backfill.stores import Store

R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class VerifyContext:
    """The open stores of the process that runs a task. Retention is the target's.

    Attributes:
        source: the source, whose rows are read as the rules leave them.
        target: the target.
        absent: entities of which the source has no collection or table.
        server_ttls: the ages at which the servers remove rows by themselves.
        since: when the verification began, by the clock of the source.
        ignored_fields: fields that are not compared.
        subset: which rows are meant.
        rules: what the copy changed on the way, and what is accepted.
        slow: entities of which the source reads all rows to cut a range.
        time: the time of both servers; each process asks for itself.
    """

    source: Store
    target: Store
    as_of: datetime
    batch_size: int
    absent: frozenset[str] = frozenset()
    server_ttls: ServerTtls = field(default_factory=ServerTtls)
    since: datetime | None = None
    ignored_fields: tuple[IgnoredPath, ...] = ()
    subset: Subset = EVERYTHING
    rules: JobRules = NO_RULES
    slow: frozenset[str] = frozenset()
    time: ServerTime = field(init=False)

    def __post_init__(self) -> None:
        """Apply the rules to the source, and get ready to ask both servers for their time."""
        # The class is frozen.
        if changes := verifier_changes(self.rules, self.source.bulk.entities()):
            object.__setattr__(self, "source", self.source.changed(changes))
        object.__setattr__(self, "time", ServerTime((self.source.bulk.now, self.target.bulk.now)))

    def entity(self, name: str) -> Entity:
        """Return an entity by name."""
        # By name, because a task is sent between processes and functions in a description cannot be.
        return next(entity for entity in self.source.bulk.entities() if entity.name == name)

    def cutoff(self, entity: Entity) -> datetime | None:
        """Return the instant up to which rows of an entity are expired."""
        return cutoff(entity, self.target.options, self.as_of)

    @property
    def changed(self) -> frozenset[str]:
        """The entities whose documents rules change; the service of the source cannot answer their lists."""
        changes = self.source.changes.documents.items()
        return frozenset(name for name, change in changes if change.dropped is None)

    def moves_tenants(self, entity: Entity) -> bool:
        """Whether a rule may change which tenant owns a row of an entity."""
        return moves_tenants(self.rules, entity)

    def comparison(self, name: str, tenant: str | None = None) -> RangeComparison:
        """Return what compares rows of an entity."""
        entity = self.entity(name)
        return RangeComparison(
            source=self.source.bulk,
            target=self.target.bulk,
            entity=entity,
            tenant=tenant,
            cutoff=self.cutoff(entity),
            batch_size=self.batch_size,
            removals=self.removals(entity),
            find_quarantined=QuarantineLookup(self.source, self.target),
            drops=tuple(self.rules.of(entity, DropRule)),
            moves_tenants=self.moves_tenants(entity),
            ignored_fields=of_entity(self.ignored_fields, entity),
            subset=self.subset,
            rules=self.rules,
        )

    def removals(self, entity: Entity) -> Removals:
        """Return which rows of an entity may be removed while they are compared."""
        age = age_limit(entity, self.target.options)
        return Removals(
            entity=entity,
            time=self.time,
            as_of=self.as_of,
            since=self.since or self.as_of,
            age=age,
            own=self.server_ttls.of(entity.name),
        )

    def list_cutoff(self, entity: Entity) -> datetime | None:
        """Return the instant up to which lists may lack rows of an entity on one side."""
        ends = (self.cutoff(entity), self.removals(entity).removal_horizon())
        return max((end for end in ends if end is not None), default=None)


class Task(Protocol[R_co]):
    """A piece of work that can be sent to another process."""

    @property
    def is_local(self) -> bool:
        """Whether another process would take longer to begin with it than this one to do it."""
        return False

    @property
    def stays(self) -> bool:
        """Whether it is for this host alone, not for the processes of an engine."""
        return False

    def run(self, context: VerifyContext) -> R_co:
        """Do the work."""
        ...
