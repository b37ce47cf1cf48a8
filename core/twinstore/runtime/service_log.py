"""What a running service says of itself: connected, migrated, lost and found again, tried again, slow.

One logger, ``twinstore.service``. Each record has its facts as attributes too, ``twinstore_driver`` and the
like, for logs that are read by programs. None names a tenant, a key, a value or a secret. Events that can
come in storms are written once a minute, with the number of suppressed ones.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final, TypeVar

from typing_extensions import override

from twinstore.errors import TwinstoreError, UnavailableError
from twinstore.runtime.forks import ForkSafeLock, Renewable, renew_in_child

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from twinstore.errors import ConcurrencyError

__all__ = [
    "LOG_INTERVAL_SECONDS",
    "Limiter",
    "log_connected",
    "log_lost_race",
    "log_ready",
    "log_recovered",
    "log_unavailable",
]


log = logging.getLogger("twinstore.service")
# Where a program has set up no log, Python would print warnings to its stderr.
log.addHandler(logging.NullHandler())
E = TypeVar("E", bound=TwinstoreError)

LOST: Final = "lost"
# Between two lines about the same thing.
LOG_INTERVAL_SECONDS: Final = 60.0


class Limiter(Renewable):
    """Lets one event of a kind pass per interval and counts the others. Thread-safe.

    A forked child starts from zero: the messages of the parent do not count as its own.
    """

    def __init__(
        self, seconds: float = LOG_INTERVAL_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._lock = ForkSafeLock()
        self.renew()
        renew_in_child(self)

    @override
    def renew(self) -> None:
        self._next: dict[Hashable, float] = {}
        self._suppressed: dict[Hashable, int] = {}

    def passes(self, kind: Hashable) -> int | None:
        """Return how many of a kind were suppressed before this one, ``None`` when this one is too."""
        now = self._clock()
        with self._lock:
            if now < self._next.get(kind, now):
                self._suppressed[kind] = self._suppressed.get(kind, 0) + 1
                return None
            self._next[kind] = now + self._seconds
            return self._suppressed.pop(kind, 0)

    def forget(self, kind: Hashable) -> bool:
        """Let the next one of a kind pass; return whether there was one since this was last asked."""
        with self._lock:
            self._suppressed.pop(kind, None)
            return self._next.pop(kind, None) is not None


_limiter: Final = Limiter()


def suppressed_text(suppressed: int) -> str:
    """Return the words for the suppressed events."""
    return f" ({suppressed} more like this since the last line)" if suppressed else ""


def log_connected(driver: str, version: str, database: str, server: str) -> None:
    """Say that a storage has connected for the first time."""
    _limiter.forget((LOST, driver))
    if _limiter.passes(("connected", driver, database, server)) is not None:
        log.info(
            "connected to %s %s, database %s on %s",
            driver,
            version,
            database,
            server,
            extra={
                "twinstore_driver": driver,
                "twinstore_server_version": version,
                "twinstore_database": database,
                "twinstore_server": server,
            },
        )


def log_unavailable(error: E, *, no_server: bool = False) -> E:
    """Log that a store could not be reached; only the first time of a storm. Return the error.

    A store that took too long, or refused, is not lost.

    Args:
        error: how a call ends.
        no_server: no server was found that could answer, regardless of the class of the error.
    """
    if type(error) is not UnavailableError and not no_server:
        return error
    suppressed = _limiter.passes((LOST, error.driver))
    if suppressed is not None:
        log.warning(
            "%s cannot be reached (%s)%s",
            error.driver,
            error.code,
            suppressed_text(suppressed),
            extra={
                "twinstore_driver": error.driver,
                "twinstore_module": error.module,
                "twinstore_entity": error.entity,
                "twinstore_code": error.code,
                "twinstore_left_out": suppressed,
            },
        )
    return error


def log_recovered(driver: str, server: Callable[[], str]) -> None:
    """Say that a store was reached again that was lost; ``server`` names it."""
    if _limiter.forget((LOST, driver)):
        place = server()
        log.info(
            "%s is reached again at %s",
            driver,
            place,
            extra={"twinstore_driver": driver, "twinstore_server": place},
        )


def log_lost_race(error: ConcurrencyError, pause: float) -> None:
    """Say that something lost against another writer and is repeated after a pause, in seconds."""
    suppressed = _limiter.passes(("race", error.driver, error.module, error.entity))
    facts = {
        "twinstore_driver": error.driver,
        "twinstore_module": error.module,
        "twinstore_entity": error.entity,
        "twinstore_pause_ms": round(1000 * pause),
        "twinstore_left_out": suppressed or 0,
    }
    # Suppressed ones go to DEBUG; the one WARNING of a minute shows an application that there are some.
    level = logging.DEBUG if suppressed is None else logging.WARNING
    log.log(
        level,
        "lost against another writer on %s%s; repeated in %.0f ms%s",
        error.driver,
        f" ({error.entity})" if error.entity else "",
        1000 * pause,
        suppressed_text(suppressed or 0),
        extra=facts,
    )


def log_ready(module: str, driver: str, version: str, schema: str) -> None:
    """Say that server, role and schema of a module were found usable; once a minute, for probes ask often."""
    if _limiter.passes(("ready", module, driver)) is not None:
        log.info(
            "%s is ready on %s %s, schema level %s",
            module,
            driver,
            version,
            schema,
            extra={
                "twinstore_module": module,
                "twinstore_driver": driver,
                "twinstore_server_version": version,
                "twinstore_schema": schema,
            },
        )
