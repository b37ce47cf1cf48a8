"""Steps that read, decide and write some rows: as one transaction, or inside the one that is open.

The flow of one attempt:

    begin, lock the rows in the order of the refs, read the clock      one round trip
    ask the rule
    write the rows, commit                                             one round trip

An absent row cannot be locked. If a concurrent transaction inserts it meanwhile, our insert conflicts and the
whole step is repeated, because then the new row is visible and can be changed. Our own transaction uses a
plain insert: the violation undoes it, so it can be committed in the round trip in which it is written. Inside
the caller's transaction a violation would undo everything, so the insert skips a key that is taken and
reports it. At REPEATABLE READ, where the new row of another transaction is never visible, the server answers
such an insert with a serialisation failure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from twinstore.access.defaults import MarkRule
from twinstore.access.errors import duplicate, not_found
from twinstore.access.paging import decoded
from twinstore.access.protocol import UniqueKey
from twinstore.catalog.row import Row
from twinstore.errors import DuplicateError, TwinstoreError
from twinstore.models.canonical import CanonicalModel
from twinstore_postgres.access import statements
from twinstore_postgres.access.queries import compile_claim
from twinstore_postgres.connection.errors import NO_SUBJECT, Subject
from twinstore_postgres.mapping.table import table_of
from twinstore_postgres.mapping.tenancy import owner_values, scope_kind, setting, shared_setting
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from twinstore.access.protocol import FieldUpdates, Ref, Rows, Rule, ServerClock
    from twinstore.access.query import Query
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore_postgres.access.execution import Execution
    from twinstore_postgres.connection.batch import Result, Step
    from twinstore_postgres.connection.transaction import TransactionSteps
    from twinstore_postgres.mapping.codec import Values
    from twinstore_postgres.mapping.table import Table

M = TypeVar("M", bound=CanonicalModel)

# Not now(), which is fixed at the start of the transaction.
CLOCK: Final = (b"SELECT clock_timestamp()", ())


class InsertLostError(Exception):
    """The key of a row that was absent a moment ago is taken."""

    def __init__(self, error: DuplicateError) -> None:
        """Take the error that reports the lost race, if no further attempt is made."""
        super().__init__()
        self.error = error


class RuleEndedError(Exception):
    """Carries the error with which a rule ended its step past everything that repeats steps."""

    def __init__(self, error: TwinstoreError) -> None:
        super().__init__()
        self.error = error


@dataclass(frozen=True, slots=True)
class RowWrite:
    """One row to be written.

    Attributes:
        ref: where it is.
        found: the stored row that is replaced, ``None`` for a new one.
        after: what is stored then.
    """

    ref: Ref
    found: Values | None
    after: Row

    @property
    def subject(self) -> Subject:
        """What the write is about."""
        return Subject(self.ref.entity, row=self.after)

    def step(self, *, own: bool) -> Step:
        """Return the statement; in a transaction of our own a key that is taken is a violation."""
        table = table_of(self.ref.entity)
        values = table.encode(self.after)
        if self.found is not None:
            # As it is stored: a row that cannot be decoded is replaced, too.
            return statements.update(table), (*values, *table.key_of(self.found))
        kind = scope_kind(self.ref.scope)
        if own:
            return statements.insert(table), values
        parent = () if table.parent is None else owner_values(table.parent, self.ref.scope)
        return statements.insert_unless_stored(table, kind), (*values, *parent)

    @property
    def taken(self) -> DuplicateError:
        """The error of a new row whose key is taken."""
        entity = self.ref.entity
        return duplicate(entity, entity.key_of(self.after.model, self.after.storage), DRIVER)


def change(execution: Execution, refs: Sequence[Ref], rule: Rule) -> Rows:
    """Change some rows in one step; see :class:`twinstore.access.protocol.Access`."""
    once = partial(attempt, execution, refs, rule)
    try:
        try:
            return execution.retry(partial(once, below=True))
        except InsertLostError:
            return execution.retry(once)  # the other transaction has committed, so its row is visible now
    except InsertLostError as lost:
        raise lost.error from lost.error.__cause__
    except RuleEndedError as ended:
        raise ended.error from ended.error.__cause__


def attempt(execution: Execution, refs: Sequence[Ref], rule: Rule, *, below: bool = False) -> Rows:
    """Lock, decide and write once; ``below`` looks for rows where their refs say they are."""
    subject = combined_subject(tuple(map(ref_subject, refs)))
    above = [parent_above(ref) if below else () for ref in refs]
    with execution.unit(shared_setting([ref.scope for ref in refs]), subject) as steps:
        # In the order of the refs: callers that name the same rows in the same order cannot deadlock.
        first = map(lock_step, refs[:-1], above[:-1])
        found = steps.run(*first, lock_step(refs[-1], above[-1], with_time=True))
        stored = [result.first for result in found]
        before = tuple(
            ref.read(table_of(ref.entity).row, values) for ref, values in zip(refs, stored, strict=True)
        )
        # Past everything that repeats steps: what the rule raises is its answer, also a ConcurrencyError.
        try:
            after = rule(before, moment(steps, found[-1]))
        except TwinstoreError as error:
            raise RuleEndedError(error) from error
        writes = [
            RowWrite(ref, old, new)
            for ref, old, new in zip(refs, stored, after, strict=True)
            if new is not None
        ]
        writes.sort(key=lambda item: item.ref.entity.depth)  # a foreign key wants the parent first
        check_parents(steps, refs, (*before, *after), writes)
        write(steps, writes)
    return tuple(old if new is None else new for old, new in zip(before, after, strict=True))


def write(steps: TransactionSteps, writes: Sequence[RowWrite]) -> None:
    """Write the rows and end the transaction, if it is ours.

    Raises:
        InsertLostError: the key of a new row is taken.
    """
    batches = split(writes, after_inserts=not steps.own)
    for batch in batches[:-1]:
        send(steps, batch, steps.run)
    # What replaces a locked row has nothing to say.
    unread = all(item.found is not None for item in batches[-1])
    send(steps, batches[-1], partial(steps.finish, unread=unread))


def split(writes: Sequence[RowWrite], *, after_inserts: bool) -> list[list[RowWrite]]:
    """Group the writes into round trips so that each failure can be attributed to its row.

    A round trip has one new row of each entity, and any number of replaced ones. Nothing may follow an insert
    that may not have happened.
    """
    if len(writes) < 2:  # noqa: PLR2004  # as most steps; nothing to distinguish
        return [[*writes]]
    batches: list[list[RowWrite]] = []
    for item in writes:
        last = batches[-1] if batches else []
        is_distinct = item.found is not None or item.ref.entity not in {other.ref.entity for other in last}
        if not last or not is_distinct or (after_inserts and last[-1].found is None):
            batches.append([])
        batches[-1].append(item)
    return batches


def send(steps: TransactionSteps, batch: Sequence[RowWrite], execute: Callable[..., list[Result]]) -> None:
    """Write some rows in one round trip."""
    subjects = tuple(item.subject for item in batch)
    subject = replace(combined_subject(subjects), each=subjects)
    try:
        results = execute(*(item.step(own=steps.own) for item in batch), subject=subject)
    except DuplicateError as error:
        # In our own transaction the cause may be another transaction's row; the next attempt will see it.
        if steps.own and any(item.found is None for item in batch):
            raise InsertLostError(error) from error
        raise
    if batch and batch[-1].found is None and not results[-1].count:
        raise InsertLostError(batch[-1].taken)


def mark(execution: Execution, entity: Entity[M], query: Query, sets: FieldUpdates) -> tuple[Row[M], ...]:
    """Set fields of the first rows of a list; see :class:`twinstore.access.protocol.Access`.

    Rows that another one holds are passed over, so that no two callers wait for or get the same ones.
    """
    table = table_of(entity)

    def once() -> tuple[Row[M], ...]:
        marked: list[Row[M]] = []
        updates: list[Step] = []
        with execution.unit(setting(query.scope), Subject(entity)) as steps:
            locked, instant = lock_readable(steps, table, query)
            for values, row in locked:
                marking = MarkRule(entity, query, sets)
                marking((row,), lambda: instant)
                if marking.done is not None:
                    marked.append(marking.done)
                    new = table.encode(marking.done)
                    updates.append((statements.update(table), (*new, *table.key_of(values))))
            steps.finish(*updates)
        return tuple(marked)

    return execution.retry(once)


def lock_readable(
    steps: TransactionSteps, table: Table[M], query: Query
) -> tuple[list[tuple[tuple[object, ...], Row[M]]], datetime]:
    """Lock the first rows of a list that can be read; return them with the time after that."""
    wanted = query
    while True:
        found, clock = steps.run(compile_claim(wanted, table), CLOCK)
        locked, _ = decoded(
            found.rows,
            lambda values: (values, table.row(values)),
            table.tenant_in if query.skips_undecodable else None,
        )
        if locked or len(found.rows) < wanted.limit:
            return locked[: query.limit], to_milliseconds(clock.rows[0][0])
        # None of them could be read; the next ones may.
        wanted = replace(wanted, limit=2 * wanted.limit)


def lock_step(ref: Ref, above: Key = (), *, with_time: bool = False) -> Step:
    """Return the statement that locks and reads the row of a ref and, on request, the time then.

    With a key ``above`` it searches only the children of that parent.
    """
    table = table_of(ref.entity)
    unique, values = table.locate(ref.key)
    made = statements.lock_with_time if with_time else statements.lock
    statement = made(table, scope_kind(ref.scope), unique, below=bool(above))
    return statement, (*values, *owner_values(table, ref.scope), *above)


def parent_above(ref: Ref) -> Key:
    """Return the key of the parent below which a row is looked for, where its own key finds nothing.

    Row-level security keeps a key inside the payload from its index, because the operators on JSON are not
    leakproof: by such a key alone the server reads the whole table. Below its parent it reads a few rows. A
    key that a row below another parent has is met by the insert, and looked for everywhere then.
    """
    return () if table_of(ref.entity).has_own_key else ref.below


def moment(steps: TransactionSteps, last: Result) -> ServerClock:
    """Return the time after the locks: it came with the row that was locked last, or the server is asked."""

    def now() -> datetime:
        return to_milliseconds(last.first[-1] if last.first is not None else steps.run(CLOCK)[0].rows[0][0])

    return now


def to_milliseconds(read: datetime) -> datetime:
    """Return what a clock showed in UTC and whole milliseconds."""
    instant = read.astimezone(UTC)
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)


def check_parents(
    steps: TransactionSteps, refs: Sequence[Ref], rows: Sequence[Row | None], writes: Sequence[RowWrite]
) -> None:
    """Refuse new rows whose parent is out of sight or absent, before the server meets a key that is taken.

    A row written before such a row may be refused for another reason; then that reason is reported.

    Args:
        steps: the transaction.
        refs: the rows of the step, among which parents may be.
        rows: the rows before the step, and those after it.
        writes: what is to be written, in this order.

    Raises:
        NotFoundError: the parent of a new row is absent or foreign.
    """
    below = [item for item in writes if item.found is None and item.ref.entity.parent is not None]
    if not below:
        return
    entities = [ref.entity for ref in refs] * 2
    there = [(entity, row) for entity, row in zip(entities, rows, strict=True) if row is not None]
    for item in below:
        table, kind = table_of(item.ref.entity), scope_kind(item.ref.scope)
        above = table.parent
        if above is None:
            continue
        key = table.parent_key(item.after)
        step = (statements.find(above, kind), (*key, *owner_values(above, item.ref.scope)))
        known = any(
            entity == above.entity
            and entity.key_of(row.model, row.storage) == key
            and entity.is_seen(item.ref.scope, row.model, row.storage)
            for entity, row in there
        )
        if not known and steps.run(step)[0].first is None:
            for batch in split(writes[: writes.index(item)], after_inserts=True):
                send(steps, batch, steps.run)
            raise not_found(above.entity, above.entity.key_text(key), DRIVER)


def ref_subject(ref: Ref) -> Subject:
    """Return what a statement about a ref is about."""
    return Subject(ref.entity, ref.key.values if isinstance(ref.key, UniqueKey) else ref.key)


def combined_subject(subjects: tuple[Subject, ...]) -> Subject:
    """Return what the statements of one round trip are about."""
    if len(subjects) > 1:
        return replace(subjects[0], others=subjects)
    return subjects[0] if subjects else NO_SUBJECT
