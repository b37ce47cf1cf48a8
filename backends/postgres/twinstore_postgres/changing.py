"""Steps that read, decide and write some rows: as one transaction, or inside the one that is open.

The flow of one attempt:

    begin, lock the rows in the order of the refs, read the clock      one round trip
    ask the rule
    write the rows, commit                                             one round trip

An absent row cannot be locked. A rival that inserts it meanwhile is in the way of the insert, and the whole step
is repeated, because then its row is seen and can be changed. A transaction of our own inserts plainly: the
violation undoes it, so it can be committed in the same round trip as it is written. Inside somebody else's a
violation would undo everything, so the insert passes over a key that is taken and says so. At REPEATABLE READ,
where a rival's new row is never seen, the server answers such an insert with a serialisation failure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from twinstore.access import Marking, Row, UniqueKey
from twinstore.canonical import CanonicalModel
from twinstore.errors import DuplicateError
from twinstore.failures import duplicate_id, not_found
from twinstore_postgres import statements
from twinstore_postgres.compile import compile_claim
from twinstore_postgres.derive import table_of
from twinstore_postgres.errors import Subject
from twinstore_postgres.owners import owner_values, setting, shared_setting, sight
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from twinstore.access import Moment, Ref, Rows, Rule, Sets
    from twinstore.catalog import Entity
    from twinstore.query import Query
    from twinstore_postgres.derive import Table
    from twinstore_postgres.work import Result, Step, Steps, Work

__all__ = ["CLOCK", "Write", "change", "lock_step", "mark", "moment", "ref_subject"]

M = TypeVar("M", bound=CanonicalModel)

# Not now(), which stands still from the begin of the transaction.
CLOCK: Final = (b"SELECT clock_timestamp()", ())


class InsertLostError(Exception):
    """The key of a row that was absent a moment ago is taken."""

    def __init__(self, error: DuplicateError) -> None:
        """Take the error that tells it, if no further attempt is made."""
        super().__init__()
        self.error = error


@dataclass(frozen=True, slots=True)
class Write:
    """One row to be written.

    Attributes:
        ref: where it is.
        before: the row that is replaced, ``None`` for a new one.
        after: what is stored then.
    """

    ref: Ref
    before: Row | None
    after: Row

    @property
    def subject(self) -> Subject:
        """What the write is about."""
        entity = self.ref.entity
        key = entity.key_of(self.after.model, self.after.storage)
        return Subject(entity, entity.key_text(key), self.after)

    def step(self, *, own: bool) -> Step:
        """Return the statement; in a transaction of our own a key that is taken is a violation."""
        table = table_of(self.ref.entity)
        values = table.encode(self.after.model, self.after.storage)
        if self.before is not None:
            key = table.entity.key_of(self.before.model, self.before.storage)
            return statements.update(table), (*values, *key)
        kind = sight(self.ref.scope)
        if own:
            return statements.insert(table), values
        parent = owner_values(table, self.ref.scope) if statements.looks_at_parent(table, kind) else ()
        return statements.insert_unless_stored(table, kind), (*values, *parent)

    @property
    def taken(self) -> DuplicateError:
        """The error of a new row whose key is taken."""
        subject = self.subject
        return duplicate_id(self.ref.entity, subject.key or "", DRIVER)


def change(work: Work, refs: Sequence[Ref], rule: Rule) -> Rows:
    """Change some rows in one step; see :class:`twinstore.access.Access`."""
    once = partial(attempt, work, refs, rule)
    try:
        return work.repeat(once)
    except InsertLostError:
        pass  # the rival has committed, so its row is seen now
    try:
        return work.repeat(once)
    except InsertLostError as lost:
        raise lost.error from lost.error.__cause__


def attempt(work: Work, refs: Sequence[Ref], rule: Rule) -> Rows:
    """Lock, decide and write once."""
    subject = Subject(refs[0].entity, ref_text(refs[0]), others=tuple(map(ref_subject, refs)))
    with work.unit(shared_setting(ref.scope for ref in refs), subject) as steps:
        *found, clock = steps.run(*map(lock_step, refs), CLOCK)
        given = tuple(row_of(table_of(ref.entity), result) for ref, result in zip(refs, found, strict=True))
        changed = rule(given, moment(clock))
        writes = [
            Write(ref, before, after)
            for ref, before, after in zip(refs, given, changed, strict=True)
            if after is not None and is_change(ref.entity, before, after)
        ]
        check_parents(steps, writes)
        write(steps, writes)
    return tuple(before if after is None else after for before, after in zip(given, changed, strict=True))


def write(steps: Steps, writes: Sequence[Write]) -> None:
    """Write the rows and end the transaction, if it is ours.

    Raises:
        InsertLostError: the key of a new row is taken.
    """
    new = [item for item in writes if item.before is None]
    subject = joint_subject(writes)
    if steps.own:
        try:
            steps.finish(*(item.step(own=True) for item in writes), subject=subject)
        except DuplicateError as error:
            if new:
                raise InsertLostError(error) from error
            raise
        return
    pending: list[Step] = []
    for item in writes:
        pending.append(item.step(own=False))
        if item.before is None:
            # Nothing may follow an insert that did not happen.
            if not steps.run(*pending, subject=subject)[-1].count:
                raise InsertLostError(item.taken)
            pending = []
    steps.finish(*pending, subject=subject)


def mark(work: Work, entity: Entity[M], query: Query, sets: Sets) -> tuple[Row[M], ...]:
    """Set fields of the first rows of a list; see :class:`twinstore.access.Access`.

    Rows that another one holds are passed over, so that no two callers wait for or get the same ones.
    """
    table = table_of(entity)

    def once() -> tuple[Row[M], ...]:
        marked: list[Row[M]] = []
        updates: list[Step] = []
        with work.unit(setting(query.scope), Subject(entity)) as steps:
            found, clock = steps.run(compile_claim(query, table), CLOCK)
            now = moment(clock)
            for values in found.rows:
                marking = Marking(entity, query, sets)
                marking((table.row(values),), now)
                if marking.done is not None:
                    marked.append(marking.done)
                    row = table.encode(marking.done.model, marking.done.storage)
                    updates.append((statements.update(table), (*row, *table.key_of(values))))
            steps.finish(*updates)
        return tuple(marked)

    return work.repeat(once)


def lock_step(ref: Ref) -> Step:
    """Return the statement that locks and reads the row of a ref."""
    table = table_of(ref.entity)
    if isinstance(ref.key, UniqueKey):
        unique, values = ref.key.index.name, ref.key.values
    else:
        unique, values = None, ref.key
    return statements.lock(table, sight(ref.scope), unique), (*values, *owner_values(table, ref.scope))


def row_of(table: Table, found: Result) -> Row | None:
    """Return the row that a lookup found."""
    return None if found.first is None else table.row(found.first)


def moment(clock: Result) -> Moment:
    """Return the time that was read after the locks, in whole milliseconds."""

    def now() -> datetime:
        read: datetime = clock.rows[0][0].astimezone(UTC)
        return read.replace(microsecond=read.microsecond // 1000 * 1000)

    return now


def is_change(entity: Entity, before: Row | None, after: Row) -> bool:
    """Whether a row is to be written; rows of an append-only entity are only ever inserted.

    Raises:
        DuplicateError: a row of an append-only entity would be replaced by another one.
    """
    if before is None or not entity.append_only:
        return True
    if before != after:
        raise duplicate_id(entity, entity.key_text(entity.key_of(after.model, after.storage)), DRIVER)
    return False


def check_parents(steps: Steps, writes: Sequence[Write]) -> None:
    """Refuse new rows whose parent is out of sight; an absent one would break the foreign key anyway.

    Raises:
        NotFoundError: the parent of a new row is absent or foreign.
    """
    for item in writes:
        table = table_of(item.ref.entity)
        kind = sight(item.ref.scope)
        if item.before is None and table.parent is not None and statements.looks_at_parent(table, kind):
            key = table.parent_key(item.after)
            statement = statements.find(table.parent, kind)
            (found,) = steps.run((statement, (*key, *owner_values(table.parent, item.ref.scope))))
            if found.first is None:
                above = table.parent.entity
                raise not_found(above, above.key_text(key), DRIVER)


def ref_text(ref: Ref) -> str:
    """Return the key of a ref for messages."""
    return ref.entity.key_text(ref.key.values if isinstance(ref.key, UniqueKey) else ref.key)


def ref_subject(ref: Ref) -> Subject:
    """Return what a statement about a ref is about."""
    return Subject(ref.entity, ref_text(ref))


def joint_subject(writes: Sequence[Write]) -> Subject | None:
    """Return what some writes of one round trip are about."""
    if not writes:
        return None
    subjects = tuple(item.subject for item in writes)
    first = subjects[0]
    return Subject(first.entity, first.key, first.row, others=subjects)
