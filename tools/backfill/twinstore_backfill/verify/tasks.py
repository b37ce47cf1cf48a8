"""The pieces of a verification, each able to run in another process."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from typing_extensions import override

from twinstore.bulk import KeyRange
from twinstore.modules import module_spec
from twinstore_backfill.copy.retention import cutoff
from twinstore_backfill.verify.kept import KeptBack
from twinstore_backfill.verify.lists import AnyStorage, ListFinding, compare_list
from twinstore_backfill.verify.ranges import RangeComparison, RangeResult, compare_range
from twinstore_backfill.verify.sampling import compare_sample

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore.catalog import Entity
    from twinstore.checks import ListQuery, ModuleChecks
    from twinstore_backfill.stores import Store

__all__ = ["ListResult", "ListTask", "RangeTask", "Task", "VerifyContext"]

R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class VerifyContext:
    """The open stores of the process that runs a task. Retention is the target's.

    Attributes:
        absent: entities of which the source has no collection or table.
    """

    source: Store
    target: Store
    as_of: datetime
    batch_size: int
    absent: frozenset[str] = frozenset()

    def entity(self, name: str) -> Entity:
        """Return an entity by name."""
        # By name, because a task is sent between processes and functions in a description cannot be.
        return next(entity for entity in self.source.bulk.entities() if entity.name == name)

    def cutoff(self, entity: Entity) -> datetime | None:
        """Return the instant up to which rows of an entity are expired."""
        return cutoff(entity, self.target.options, self.as_of)


class Task(Protocol[R_co]):
    """A piece of work that can be sent to another process."""

    def run(self, context: VerifyContext) -> R_co:
        """Do the work."""
        ...


@dataclass(frozen=True, slots=True)
class RangeTask(Task[RangeResult]):
    """Compare one range; with ``rates`` only a sample of it."""

    entity: str
    tenant: str | None
    within: KeyRange
    rates: Mapping[str, float] | None = None
    seed: int = 0

    @override
    def run(self, context: VerifyContext) -> RangeResult:
        """Compare."""
        entity = context.entity(self.entity)
        work = RangeComparison(
            source=context.source.bulk,
            target=context.target.bulk,
            entity=entity,
            tenant=self.tenant,
            cutoff=context.cutoff(entity),
            batch_size=context.batch_size,
            kept_back=KeptBack(context.source, context.target),
        )
        if self.rates is None:
            return compare_range(work, self.within)
        return compare_sample(work, self.within, self.rates, self.seed)


@dataclass(frozen=True, slots=True)
class ListTask(Task["ListResult"]):
    """Ask for the lists of one tenant, or with ``None`` those over all tenants.

    With ``target_only`` the target is asked twice: then the lists only have to work.
    """

    tenant: str | None
    page: int
    target_only: bool = False

    @override
    def run(self, context: VerifyContext) -> ListResult:
        """Compare."""
        source = context.target if self.target_only else context.source
        entities = context.target.bulk.entities()
        make = module_spec(context.target.module).checks
        if make is None:
            return ListResult([])
        # The description of a module names its checks and its storage together.
        checks = cast(
            "ModuleChecks[AnyStorage]",
            make({entity.name: context.cutoff(entity) for entity in entities}, self.page),
        )
        absent = frozenset[str]() if self.target_only else context.absent

        def compared(query: ListQuery[AnyStorage]) -> ListFinding:
            return compare_list(query, source.storage, context.target.storage, absent)

        queries = checks.over_all() if self.tenant is None else checks.of_tenant(self.tenant, source.storage)
        result = ListResult([])
        for query in queries:
            (result.due if query.due else result.lists).append(compared(query))
        return result


@dataclass(slots=True)
class ListResult:
    """What the lists showed."""

    lists: list[ListFinding]
    due: list[ListFinding] = field(default_factory=list[ListFinding])

    def add(self, other: ListResult) -> None:
        """Add the lists of another tenant."""
        self.lists += other.lists
        self.due += other.due
