"""The pieces of a verification, each able to run in another process."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from typing_extensions import override

from twinstore.bulk import Key, KeyRange
from twinstore.modules import module_spec
from twinstore_backfill.copy.retention import age_limit, cutoff
from twinstore_backfill.ignoring import IgnoredPath, of_entity
from twinstore_backfill.subset import EVERYTHING, Subset
from twinstore_backfill.verify.kept import KeptBack
from twinstore_backfill.verify.lists import AnyStorage, ListFinding, compare_list
from twinstore_backfill.verify.ranges import RangeComparison, compare_keys, compare_parts, compare_range
from twinstore_backfill.verify.removals import OwnAges, Removals, ServerTime
from twinstore_backfill.verify.results import RangeResult
from twinstore_backfill.verify.sampling import compare_sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from twinstore.catalog import Entity
    from twinstore.checks import ListQuery, ModuleChecks
    from twinstore_backfill.stores import Store
    from twinstore_backfill.verify.options import RowChoice

__all__ = [
    "KeyTask",
    "ListResult",
    "ListTask",
    "RangeTask",
    "RestTask",
    "Task",
    "VerifyContext",
    "key_tasks",
    "list_queries",
    "list_tasks",
]

R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class VerifyContext:
    """The open stores of the process that runs a task. Retention is the target's.

    Attributes:
        absent: entities of which the source has no collection or table.
        own_ages: the ages at which the servers remove rows by themselves.
        since: when the verification began, by the clock of the source.
        ignored: unknown properties that a copy drops.
        ignored_fields: known ones that are not compared.
        subset: which rows are meant.
        slow: entities of which the source reads all rows to cut a range.
        time: the time of both servers; each process asks for itself.
    """

    source: Store
    target: Store
    as_of: datetime
    batch_size: int
    absent: frozenset[str] = frozenset()
    own_ages: OwnAges = field(default_factory=OwnAges)
    since: datetime | None = None
    ignored: tuple[IgnoredPath, ...] = ()
    ignored_fields: tuple[IgnoredPath, ...] = ()
    subset: Subset = EVERYTHING
    slow: frozenset[str] = frozenset()
    time: ServerTime = field(init=False)

    def __post_init__(self) -> None:
        """Get ready to ask both servers for their time."""
        # The class is frozen.
        object.__setattr__(self, "time", ServerTime((self.source.bulk.now, self.target.bulk.now)))

    def entity(self, name: str) -> Entity:
        """Return an entity by name."""
        # By name, because a task is sent between processes and functions in a description cannot be.
        return next(entity for entity in self.source.bulk.entities() if entity.name == name)

    def cutoff(self, entity: Entity) -> datetime | None:
        """Return the instant up to which rows of an entity are expired."""
        return cutoff(entity, self.target.options, self.as_of)

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
            kept_back=KeptBack(self.source, self.target),
            ignored=of_entity(self.ignored, entity),
            ignored_fields=of_entity(self.ignored_fields, entity),
            subset=self.subset,
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
            own=self.own_ages.of(entity.name),
        )

    def list_cutoff(self, entity: Entity) -> datetime | None:
        """Return the instant up to which lists may lack rows of an entity on one side."""
        ends = (self.cutoff(entity), self.removals(entity).ahead())
        return max((end for end in ends if end is not None), default=None)


class Task(Protocol[R_co]):
    """A piece of work that can be sent to another process."""

    @property
    def here(self) -> bool:
        """Whether another process would take longer to begin with it than this one to do it."""
        return False

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
        work = context.comparison(self.entity, self.tenant)
        if self.rates is None:
            return compare_range(work, self.within)
        return compare_sample(work, self.within, self.rates, self.seed)


@dataclass(frozen=True, slots=True)
class RestTask(Task[RangeResult]):
    """Compare the parts of a range that digests leave open, and add them to what these prove.

    Attributes:
        proved: what the digests prove.
        parts: what they leave open, in key order.
        compared: how many ranges of digests these parts are.
        alone: whether there are so few that no other process is started for them.
    """

    proved: RangeResult
    parts: tuple[KeyRange, ...]
    compared: int
    alone: bool = False

    @property
    @override
    def here(self) -> bool:
        """Whether another process would take longer to begin with it than this one to do it."""
        return self.alone or not self.parts

    @override
    def run(self, context: VerifyContext) -> RangeResult:
        """Compare."""
        result = self.proved
        if self.parts:
            compare_parts(context.comparison(result.entity, result.tenant), self.parts, result)
        result.shares.compared += self.compared
        return result


@dataclass(frozen=True, slots=True)
class KeyTask(Task[RangeResult]):
    """Compare single rows."""

    entity: str
    keys: tuple[Key, ...]

    @override
    def run(self, context: VerifyContext) -> RangeResult:
        """Compare."""
        return compare_keys(context.comparison(self.entity), self.keys)


@dataclass(frozen=True, slots=True)
class ListTask(Task["ListResult"]):
    """Ask for the lists of one tenant, or with ``None`` those over all tenants.

    With ``target_only`` the target is asked twice: then the lists only have to work. With ``entities`` only
    the lists that are made of at least one of them: others would compare rows that nobody asked about.
    """

    tenant: str | None
    page: int
    target_only: bool = False
    entities: tuple[str, ...] = ()

    @override
    def run(self, context: VerifyContext) -> ListResult:
        """Compare."""
        source = context.target if self.target_only else context.source
        absent = frozenset[str]() if self.target_only else context.absent
        result = ListResult([])
        for query in list_queries(context, self.tenant, self.page, source.storage):
            if self.entities and set(self.entities).isdisjoint(query.reads):
                continue
            found = compare_list(query, source.storage, context.target.storage, absent)
            (result.due if query.due else result.lists).append(found)
        return result


def list_queries(
    context: VerifyContext, tenant: str | None, page: int, source: AnyStorage
) -> Iterable[ListQuery[AnyStorage]]:
    """Return the lists of a tenant, or with ``None`` those over all tenants; none where a module has none."""
    make = module_spec(context.target.module).checks
    if make is None:
        return ()
    cutoffs = {entity.name: context.list_cutoff(entity) for entity in context.target.bulk.entities()}
    # The description of a module names its checks and its storage together.
    checks = cast("ModuleChecks[AnyStorage]", make(cutoffs, page))
    return checks.over_all() if tenant is None else checks.of_tenant(tenant, source)


def list_tasks(
    tenants: Iterable[str | None], page: int, entities: tuple[str, ...], *, alone: bool
) -> Iterator[ListTask | None]:
    """Return the tasks that compare lists, one after the other where a page takes much memory."""
    for tenant in tenants:
        yield ListTask(tenant, page, entities=entities)
        if alone:
            yield None


def key_tasks(entities: Iterable[str], only: RowChoice) -> Iterator[KeyTask]:
    """Return the tasks that compare single rows."""
    for name in entities:
        yield from (KeyTask(name, keys) for keys in only.portions(name))


@dataclass(slots=True)
class ListResult:
    """What the lists showed."""

    lists: list[ListFinding]
    due: list[ListFinding] = field(default_factory=list[ListFinding])

    def add(self, other: ListResult) -> None:
        """Add the lists of another tenant."""
        self.lists += other.lists
        self.due += other.due
