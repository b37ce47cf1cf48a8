"""How repositories reach the store: alone, in a session, or in a transaction."""

from __future__ import annotations

import logging
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Self, TypeVar

from pymongo import ReadPreference
from pymongo.errors import ConfigurationError, ConnectionFailure, PyMongoError

from twinstore.access.defaults import PartialProgress
from twinstore.access.protocol import UniqueKey
from twinstore.access.retry import retry
from twinstore.access.unit_state import UnitState, write_refused
from twinstore.errors import Outcome, UnavailableError
from twinstore.runtime.forks import ProcessGuard, cleanup_unless_forked
from twinstore_mongo.client.cancellation import call_session, end_session, killable
from twinstore_mongo.client.errors import CLIENT_ERRORS, DRIVER, STORE_ERRORS, loggable, translate
from twinstore_mongo.client.types import MAJORITY_WRITE, SNAPSHOT_READ

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from types import TracebackType

    from pymongo.client_session import ClientSession
    from pymongo.collection import Collection

    from twinstore.access.scope import Scope
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore_mongo.client.connection import Connection
    from twinstore_mongo.client.database import OpenDatabase
    from twinstore_mongo.client.errors import Where
    from twinstore_mongo.client.types import Document

T = TypeVar("T")

log = logging.getLogger("twinstore.mongo")

# With 5 s for the search of a server each, they outlast the election of a primary: 12 s as a rule.
COMMIT_ATTEMPTS: Final = 5
# What the client raises instead of sending a command to a server that is away or recovers.
UNSENT: Final = (ConnectionFailure, ConfigurationError)
UNKNOWN_COMMIT: Final = "UnknownTransactionCommitResult"


@dataclass(frozen=True, slots=True)
class RepositoryContext:
    """What the repositories of one set share: connection, scope, and perhaps a session.

    Attributes:
        bound: the session or transaction that the calls belong to; ``None``: each call is independent.
        joined: the store as seen by the client of the session; ``None`` without a session.
        read_only: the unit refuses writes.
    """

    connection: Connection
    scope: Scope
    state: UnitState = field(default_factory=UnitState)
    bound: ClientSession | None = None
    joined: OpenDatabase | None = None
    read_only: bool = False

    @property
    def store(self) -> OpenDatabase:
        """The open store."""
        return self.joined or self.connection.store

    @property
    def session(self) -> ClientSession | None:
        """The session that a statement names; of a call on its own, that which it may have for itself."""
        return call_session(self.store.client) if self.bound is None else self.bound

    @property
    def in_transaction(self) -> bool:
        """Whether calls belong to a transaction that the caller ends."""
        return self.bound is not None and self.bound.in_transaction

    def collection(self, entity: Entity) -> Collection[Document]:
        """Return the collection of an entity."""
        return self.store.collection(self.connection.collection_name(entity))

    def reading(self, entity: Entity, key: Key | UniqueKey | None = None) -> GuardedCall:
        """Return the guard of a call that only reads."""
        return GuardedCall(self, entity, key, Outcome.NOT_APPLIED)

    def writing(self, entity: Entity, key: Key | UniqueKey | None = None) -> GuardedCall:
        """Return the guard of a call that writes."""
        self.check_writable()
        # Nothing of a transaction is applied before its commit.
        return GuardedCall(self, entity, key, Outcome.NOT_APPLIED if self.in_transaction else Outcome.UNKNOWN)

    @contextmanager
    def following(self) -> Iterator[RepositoryContext]:
        """Let what is read in the block follow what was written in it before, also on another primary.

        A new primary may not know yet that a majority has a write that its predecessor confirmed, and reads
        what a majority has. In a session it waits until it knows.
        """
        if self.bound is not None or not self.store.capabilities.sessions:
            yield self
            return
        with client_session(self.store, causal_consistency=True) as session:
            yield replace(self, bound=session)

    def independent_steps(self) -> PartialProgress:
        """Return the block of a call whose steps are independent."""
        return PartialProgress(in_unit=self.in_transaction)

    def check_writable(self) -> None:
        """Raise ``ValidationError`` in a unit that was opened for reading, also before a write of nothing."""
        if self.read_only:
            raise write_refused(DRIVER)

    def abort(self) -> None:
        """Make the unit unusable when it is a transaction."""
        if self.in_transaction:
            self.state.abort()

    def atomic(self, action: Callable[[RepositoryContext], T]) -> T:
        """Run an action in this transaction, or in a separate one that is repeated after lost races.

        Without transactions on the server the writes simply follow each other.
        """
        self.state.check()
        self.check_writable()
        if self.in_transaction or not self.store.capabilities.transactions:
            return action(self)
        return retry(lambda: self._separately(action))

    def _separately(self, action: Callable[[RepositoryContext], T]) -> T:
        with self.opened() as context:
            return action(context)

    @contextmanager
    def opened(self) -> Iterator[RepositoryContext]:
        """Open a transaction, in the session of this unit where it has one: commit at normal exit.

        Raises:
            TransactionAbortedError: an error of the store was caught inside; everything is rolled back.
        """
        store = self.store
        with self._own_session(store) as session, transaction(session, store):
            context = replace(self, bound=session, joined=store, state=UnitState())
            try:
                yield context
                context.state.check_commit()
            finally:
                context.state.closed = True

    def _own_session(self, store: OpenDatabase) -> AbstractContextManager[ClientSession]:
        return client_session(store) if self.bound is None else nullcontext(self.bound)


class GuardedCall:
    """Guards one call: bounds its time, translates exceptions, and ends a transaction that failed."""

    __slots__ = ("_context", "_entity", "_key", "_killable", "_limit", "_outcome", "_store")

    def __init__(
        self, context: RepositoryContext, entity: Entity, key: Key | UniqueKey | None, outcome: Outcome
    ) -> None:
        self._context = context
        self._entity = entity
        self._key = key
        self._outcome = outcome

    def __enter__(self) -> Self:
        """Check that the unit can be used."""
        self._context.state.check()
        # Kept for the message of an error: by then the storage may be closed, and would connect again.
        self._store = store = self._context.store
        try:
            self._limit = store.limited()
            self._killable = killable(store, self._context.bound)
        except CLIENT_ERRORS as error:
            self._context.abort()
            raise translate(error, self._where) from error
        if self._killable is not None:
            self._killable.begin()
        self._limit.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._limit.__exit__(kind, error, trace)
        if self._killable is not None:
            self._killable.end()
        if error is None:
            return
        if isinstance(error, CLIENT_ERRORS):
            self._context.abort()
            raise translate(error, self._where) from error
        # A refused write has ended the transaction on the server, whatever the caller makes of the error.
        if isinstance(error, STORE_ERRORS):
            self._context.abort()

    @property
    def _where(self) -> Where:
        key = None if self._key is None else text_of_key(self._entity, self._key)
        return self._store.where.of(self._entity, key, self._outcome)


def text_of_key(entity: Entity, key: Key | UniqueKey) -> str:
    """Return a key as messages show it."""
    return entity.key_text(key.values if isinstance(key, UniqueKey) else key)


@contextmanager
def client_session(store: OpenDatabase, *, causal_consistency: bool | None = None) -> Iterator[ClientSession]:
    """Open a client session; a forked child leaves it alone, because to end it would roll the parent back."""
    session = store.client.start_session(causal_consistency=causal_consistency)
    with cleanup_unless_forked(partial(end_session, session)):
        yield session


@contextmanager
def transaction(session: ClientSession, store: OpenDatabase) -> Iterator[None]:
    """Commit at normal exit, roll back on any exception.

    Raises:
        ConcurrencyError: the transaction lost against another one.
        UnavailableError: the connection was lost; at the commit with an unknown outcome.
    """
    # The commit waits until a majority has it, so that a reported success cannot be undone.
    session.start_transaction(SNAPSHOT_READ, MAJORITY_WRITE, ReadPreference.PRIMARY)
    process = ProcessGuard()
    try:
        yield
        process.check("This transaction")
        commit(session, store)
    finally:
        if session.in_transaction and not process.forked:
            roll_back(session)


def roll_back(session: ClientSession) -> None:
    """Roll back; an unreachable server does so itself after transactionLifetimeLimitSeconds."""
    try:
        session.abort_transaction()
    except PyMongoError as error:
        # The error that ended the transaction is on its way; this one must not take its place.
        log.debug("A transaction could not be aborted (%s); the server ends it by itself.", loggable(error))


def commit(session: ClientSession, store: OpenDatabase) -> None:
    """Commit; retry while the outcome is unknown, because commitTransaction is idempotent."""
    lost: PyMongoError | None = None
    for _ in range(COMMIT_ATTEMPTS):
        try:
            with store.limited():
                return session.commit_transaction()
        except PyMongoError as error:
            # Who cannot be reached now, or recovers, says nothing of the commit that was sent before.
            if not is_unknown(error) and not (lost and isinstance(error, UNSENT)):
                raise translate(error, store.where) from error
            log.debug("The outcome of a commit is unknown (%s).", loggable(error))
            lost = error
    raise lost_commit(store.where) from lost


def is_unknown(error: PyMongoError) -> bool:
    """Whether the client says that a commit may have been applied."""
    return error.has_error_label(UNKNOWN_COMMIT)


def lost_commit(where: Where) -> UnavailableError:
    """Return the error of a commit whose answer never came."""
    return UnavailableError(
        f"The connection to {where.server} was lost during the commit and did not come back; it is unknown "
        "whether the unit of work was committed. Read before you repeat it.",
        outcome=Outcome.UNKNOWN,
        driver=DRIVER,
    )


@contextmanager
def translating(where: Where) -> Iterator[None]:
    """Translate what the client raises; for calls outside the repositories."""
    try:
        yield
    except CLIENT_ERRORS as error:
        raise translate(error, where) from error
