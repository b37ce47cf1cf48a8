"""The hook of a host, and how the library calls it without depending on it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import fields, is_dataclass
from enum import Enum, StrEnum
from functools import lru_cache, wraps
from inspect import getattr_static, isfunction
from time import perf_counter
from types import new_class
from typing import TYPE_CHECKING, Final, NamedTuple, ParamSpec, Protocol, TypeVar, cast

from pydantic import BaseModel

from twinstore.errors import ConfigurationError, TwinstoreError
from twinstore.runtime.forks import ForkSafeLock

if TYPE_CHECKING:
    from collections.abc import Generator
    from contextlib import AbstractContextManager

log = logging.getLogger("twinstore.observing")
E = TypeVar("E")

# What a span calls the database of a driver, by the name of the driver in lower case.
DB_SYSTEM_NAMES: Final[dict[str, str]] = {}
# Once, because it may fail in every call.
FAILED: Final = "The observer %s failed; the call goes on, and further failures of it are not logged."

METHODS: Final = ("started", "lock_waited", "system_scope_opened")

Ending = Callable[["Call"], object]
"""Called when a call has ended."""


class Observer(Protocol):
    """Is notified of what a storage does. Derive from it, and override the methods of interest.

    A call has a beginning and an end, so that an observer can put a span around it. They are two plain
    functions, not a context manager: that is the cheapest form, the end is a record instead of an exception,
    and an observer cannot suppress an exception.

    The methods run in the thread and the context of the call, so context variables are those of the caller,
    and several run at the same time. They must be short and must not call the storage that they observe. What
    they raise is logged once for each observer and never reaches the caller.
    """

    def started(self, operation: Operation) -> Ending | None:
        """A call begins; return a function to call at its end, ``None`` if the end is of no interest."""
        del operation
        return None

    def lock_waited(self, wait: LockWait) -> None:
        """An attempt to acquire a lock has ended, in which the caller may have waited for another holder."""
        del wait

    def system_scope_opened(self, opening: SystemScopeOpening) -> None:
        """System scope was opened, for one call or for a session or unit of work."""
        del opening


class Observers:
    """All observers of a storage. Thread-safe."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        """Take them; at a beginning they are called in this order, at an end in reverse order.

        Raises:
            ConfigurationError: one of them is not an observer.
        """
        self._observers = checked(observers)
        self._failed: set[int] = set()
        self._lock = ForkSafeLock()

    def __bool__(self) -> bool:
        return bool(self._observers)

    def started(self, operation: Operation) -> list[tuple[Observer, Ending]]:
        """Report that a call begins; return the observers to notify of its end."""
        found: list[tuple[Observer, Ending]] = []
        for observer in self._observers:
            try:
                ending = observer.started(operation)
            except Exception:
                if self._is_first_failure(observer):
                    log.exception(FAILED, type(observer).__name__)
            except BaseException as error:
                # An interrupt, which ends the call before it is made: what has begun for it must end.
                self.ended(found, call_of(operation, 0.0, error))
                raise
            else:
                if ending is not None:
                    found.append((observer, ending))
        return found

    def ended(self, endings: list[tuple[Observer, Ending]], call: Call) -> None:
        """Report that a call has ended."""
        # The last one first: what it put around the call lies inside what the others did.
        while endings:
            observer, ending = endings.pop()
            try:
                self._notify(observer, ending, call)
            except BaseException:
                # An interrupt; the others have things to end too.
                self.ended(endings, call)
                raise

    def lock_waited(self, wait: LockWait) -> None:
        """Report how long a caller waited for a lock."""
        for observer in self._observers:
            self._notify(observer, observer.lock_waited, wait)

    def system_scope_opened(self, opening: SystemScopeOpening) -> None:
        """Report that system scope was opened."""
        for observer in self._observers:
            self._notify(observer, observer.system_scope_opened, opening)

    def _notify(self, observer: Observer, callback: Callable[[E], object], event: E) -> None:
        try:
            callback(event)
        except Exception:
            if self._is_first_failure(observer):
                log.exception(FAILED, type(observer).__name__)

    def _is_first_failure(self, observer: Observer) -> bool:
        with self._lock:
            first = id(observer) not in self._failed
            self._failed.add(id(observer))
        return first


def checked(observers: object) -> tuple[Observer, ...]:
    """Return what a host gave, which no type checker may have seen.

    Raises:
        ConfigurationError: it is not a list, or one of its items is not an observer; it would fail in every
            call.
    """
    if not isinstance(observers, Iterable):
        name = type(observers).__name__
        raise ConfigurationError(f"Argument observers should be a list of observers, not one {name}.")
    # Safe, because each is looked at before it is used.
    found = tuple(cast("Iterable[object]", observers))
    for observer in found:
        if isinstance(observer, type):
            name = observer.__name__
            raise ConfigurationError(f"The observer {name} is a class; give an object, such as {name}().")
        for method in METHODS:
            if not callable(getattr(observer, method, None)):
                name = type(observer).__name__
                raise ConfigurationError(
                    f"The observer {name} has no method {method}; derive it from Observer."
                )
    return cast("tuple[Observer, ...]", found)


# What is reported to observers: each call, each wait for a lock, each opening of system scope.
#
# No record holds a tenant, a key or a payload. What a record says comes from code: names of modules,
# entities, operations and drivers, codes of errors and names of their classes. So a metric over any of them
# stays small.
#
# They are named tuples and not data classes, because one is made in every call: that takes a third of the
# time, and the names of an operation are the key of its numbers as they are.


class CallOutcome(StrEnum):
    """How a call ended: well, with one of our errors, whose code it is then, or with an error of others.

    An answer is a good end, whatever it says: also ``None``, ``False`` and an empty page.
    """

    OK = "ok"
    ABORTED = "aborted"
    CAPABILITY_NOT_SUPPORTED = "capability_not_supported"
    CONCURRENCY = "concurrency"
    CONFIGURATION_ERROR = "configuration_error"
    CONFLICT = "conflict"
    CONNECTION_ERROR = "connection_error"
    CONSENT_REQUIRED = "consent_required"
    DUPLICATE = "duplicate"
    INVALID_TRANSITION = "invalid_transition"
    LEASE_LOST = "lease_lost"
    LOCK_TIMEOUT = "lock_timeout"
    MIGRATION_ERROR = "migration_error"
    NOT_FOUND = "not_found"
    TENANT_SCOPE = "tenant_scope"
    TIMEOUT = "timeout"
    UNDECODABLE = "undecodable"
    VALIDATION_ERROR = "validation_error"
    ERROR = "error"


FAILURES: Final = {outcome.value: outcome for outcome in CallOutcome if outcome is not CallOutcome.OK}


class Operation(NamedTuple):
    """What is called.

    Attributes:
        module: the name of the module, such as ``library``.
        entity: the attribute of the storage on which it is called, such as ``books`` or ``loan_service``;
            ``storage`` for what concerns the storage as a whole.
        operation: the method, such as ``update``.
        driver: the name of the driver.
    """

    module: str
    entity: str
    operation: str
    driver: str


class Call(NamedTuple):
    """One call that has ended.

    Attributes:
        module, entity, operation, driver: what was called; see :class:`Operation`.
        outcome: how it ended.
        seconds: how long it took, by a clock that only goes forward.
        error: the class of what it raised with its module, such as ``twinstore.errors.DuplicateError``;
            ``None`` after a good end.
    """

    module: str
    entity: str
    operation: str
    driver: str
    outcome: CallOutcome
    seconds: float
    error: str | None


class LockWait(NamedTuple):
    """One attempt to acquire a lock that has ended without an error of the store.

    Attributes:
        module, entity, driver: where the lock is; see :class:`Operation`.
        seconds: how long it took until the caller had the lock or gave up.
        contended: another holder had the lock at the first attempt.
        acquired: the caller has the lock.
    """

    module: str
    entity: str
    driver: str
    seconds: float
    contended: bool
    acquired: bool


class SystemScopeOpening(NamedTuple):
    """System scope was opened, in which one sees all tenants.

    Attributes:
        module: the module it was opened for.
        driver: the name of the driver.
        purpose: what for; one of at most a hundred texts in a process, ``other`` for all further ones.
    """

    module: str
    driver: str
    purpose: str


def outcome_of(error: BaseException | None) -> CallOutcome:
    """Return how a call ended that raised this error, or none."""
    if error is None:
        return CallOutcome.OK
    code = error.code if isinstance(error, TwinstoreError) else ""
    # A third-party class may have another code.
    return FAILURES.get(code, CallOutcome.ERROR)


def call_of(operation: Operation, seconds: float, error: BaseException | None) -> Call:
    """Return the record of a call that has ended, well or with an error."""
    kind = None if error is None else f"{type(error).__module__}.{type(error).__qualname__}"
    return Call(*operation, outcome_of(error), seconds, kind)


P = ParamSpec("P")
T = TypeVar("T")

STORAGE: Final = "storage"
"""The entity of what concerns a storage as a whole."""


class Notifier:
    """Reports the calls to one entity of a storage to its observers. Thread-safe."""

    def __init__(self, observers: Observers, module: str, driver: str, entity: str = STORAGE) -> None:
        self._observers = observers
        self._module = module
        self._driver = driver
        self._entity = entity
        # No lock: two threads that meet here make the same twice, and one of them stays.
        self._operations: dict[str, Operation] = {}
        self._entities: dict[str, Notifier] = {}

    def of(self, entity: str) -> Notifier:
        """Return the notifier of another entity with the same observers."""
        found = self._entities.get(entity)
        if found is None:
            found = self._entities[entity] = Notifier(self._observers, self._module, self._driver, entity)
        return found

    def run(self, name: str, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call to the operation of this name and return its answer."""
        operation = self._operation(name)
        endings = self._observers.started(operation)
        token = CURRENT_NOTIFIER.set(self)
        start = perf_counter()
        try:
            answer = call(*args, **kwargs)
        except BaseException as error:
            self._ended(operation, endings, perf_counter() - start, error)
            raise
        else:
            self._ended(operation, endings, perf_counter() - start, None)
            return answer
        finally:
            CURRENT_NOTIFIER.reset(token)

    @contextmanager
    def block(self, name: str, block: AbstractContextManager[T]) -> Generator[T]:
        """Enter and leave a block, which is one call to the operation of this name."""
        operation = self._operation(name)
        endings = self._observers.started(operation)
        start = perf_counter()
        try:
            with block as value:
                yield value
        except BaseException as error:
            self._ended(operation, endings, perf_counter() - start, error)
            raise
        self._ended(operation, endings, perf_counter() - start, None)

    def lock_waited(self, seconds: float, *, contended: bool, acquired: bool) -> None:
        """Report the outcome of an attempt to acquire a lock of this entity; see :class:`LockWait`."""
        self._observers.lock_waited(
            LockWait(self._module, self._entity, self._driver, seconds, contended, acquired)
        )

    def system_scope_opened(self, purpose: str) -> None:
        """Report that system scope was opened; see :class:`SystemScopeOpening`."""
        self._observers.system_scope_opened(SystemScopeOpening(self._module, self._driver, purpose))

    def _operation(self, name: str) -> Operation:
        found = self._operations.get(name)
        if found is None:
            found = self._operations[name] = Operation(self._module, self._entity, name, self._driver)
        return found

    def _ended(
        self,
        operation: Operation,
        endings: list[tuple[Observer, Ending]],
        seconds: float,
        error: BaseException | None,
    ) -> None:
        self._observers.ended(endings, call_of(operation, seconds, error))


CURRENT_NOTIFIER: Final[ContextVar[Notifier | None]] = ContextVar("twinstore_notifier", default=None)
"""The notifier of the call that runs here; ``None`` outside of calls and without observers.

Code below a repository uses it to report locks and system scope, so that no signature in between has to name
it.
"""


def report_lock_wait(entity: str, seconds: float, *, contended: bool, acquired: bool) -> None:
    """Report to the observers of the present call, if any, how an attempt to acquire a lock ended.

    Args:
        entity: the name under which locks are observed.
        seconds: from the call until the caller had the lock or gave up.
        contended: another holder had it at the first attempt.
        acquired: the caller has it.
    """
    notifier = CURRENT_NOTIFIER.get()
    if notifier is not None:
        notifier.of(entity).lock_waited(seconds, contended=contended, acquired=acquired)


# The parts of a session with a notifier between them and the caller, which reports every call.
#
#     session of a module -> copy with an observed part in the place of each -> Notifier.run -> the part
#   itself
#
# A part is a repository or a service of any module on any driver, so what is observed is found by its class:
# every public method. Calls between parts are not observed, nor is the call of a method by another method of
# the same object: a call of the application is reported once.


S = TypeVar("S")

# Modules have some tens; a driver that makes classes as it goes must not fill the memory.
CLASS_CACHE_SIZE: Final = 512


class Runner(Protocol):
    """Makes the calls of an observed part; usually the notifier that reports them."""

    def run(self, name: str, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call to the operation of this name and return its answer."""
        ...


class Observed:
    """What an observed part has in addition to the class of the part, in names that no part has."""

    twinstore_part: object
    twinstore_notifier: Runner

    def __getattr__(self, name: str) -> object:
        """Return an attribute of the part, whose state the observed one does not have."""
        # copy and pickle ask before there is a part to look at.
        if name.startswith("twinstore_"):
            raise AttributeError(name)
        return getattr(self.twinstore_part, name)


def observed_session(session: S, notifier: Notifier) -> S:
    """Return a session whose parts are observed; the entity is the name of the attribute."""
    found = copy(session)
    for name in attributes(session):
        # Past the class, because sessions are frozen.
        object.__setattr__(found, name, observed(getattr(session, name), notifier.of(name)))
    return found


def attributes(session: object) -> Iterable[str]:
    """Return the names under which a session has its parts."""
    return [field.name for field in fields(session)] if is_dataclass(session) else vars(session)


def observed(part: T, notifier: Runner) -> T:
    """Return an object of the class of ``part`` and with its attributes, whose public methods are observed.

    Args:
        part: a repository, a service, or any other object with methods; an object without public methods is
            returned as it is.
        notifier: reports the calls.
    """
    kind = observed_class(type(part))  # type: ignore[arg-type]  # asks for the hash of a part, not of its class
    if kind is None:
        return part
    found = object.__new__(kind)
    object.__setattr__(found, "twinstore_part", part)
    object.__setattr__(found, "twinstore_notifier", notifier)
    return cast("T", found)


@lru_cache(maxsize=CLASS_CACHE_SIZE)
def observed_class(kind: type[object]) -> type[Observed] | None:
    """Return the class of the observed parts of a class, ``None`` where there is nothing to observe.

    It derives from that class, so that ``isinstance`` says the same of both. A class that admits none below
    it, or that is a container of Python, is left alone with a warning: a host must not fail because it
    observes.
    """
    # Values, which a session may have next to the parts.
    if issubclass(kind, (BaseModel, Enum)):
        return None
    methods: dict[str, object] = {
        name: observed_method(name, getattr(kind, name))
        for name in dir(kind)
        if not name.startswith("_") and isfunction(getattr_static(kind, name))
    }
    if not methods:
        return None
    body = {"__module__": kind.__module__, "__doc__": kind.__doc__, **methods}
    try:
        # The observed object may itself wrap something: that is how a closed storage refuses its parts.
        bases = (kind,) if issubclass(kind, Observed) else (Observed, kind)
        found = new_class(kind.__name__, bases, {}, lambda names: names.update(body))
        object.__new__(found)
    except TypeError as error:
        log.warning("Calls to %s.%s are not observed: %s.", kind.__module__, kind.__qualname__, error)
        return None
    return cast("type[Observed]", found)


def observed_method(name: str, method: Callable[..., object]) -> Callable[..., object]:
    """Return the method of an observed part that calls the method of the part and reports the call."""

    @wraps(method)
    def call(self: Observed, /, *args: object, **kwargs: object) -> object:
        return self.twinstore_notifier.run(name, getattr(self.twinstore_part, name), *args, **kwargs)

    return call
