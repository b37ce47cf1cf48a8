"""What the repositories of tracking share: rows without tenant, a clock, and the options of the host."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Self

from typing_extensions import override

from twinstore.access.repository import Repository
from twinstore.access.scope import instant_argument
from twinstore.catalog.tenancy import NO_TENANT
from twinstore.clock import SystemClock
from twinstore.tracking.options import TrackingOptions
from twinstore.tracking.rules.records import R, touched

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinstore.access.protocol import Access
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.tenancy import Tenants
    from twinstore.clock import Clock

PURPOSE: Final = "tracking"
SYSTEM: Final = SystemClock()
DEFAULTS: Final = TrackingOptions()
EARLIEST: Final = datetime.min.replace(tzinfo=UTC)


class TrackingRepository(Repository):
    """Base of the repositories of tracking."""

    @override
    def __init__(self, access: Access) -> None:
        super().__init__(access)
        self._clock: Clock = SYSTEM
        self._options = DEFAULTS

    def tuned(self, clock: Clock, options: TrackingOptions) -> Self:
        """Return the same repository with the clock and the options of a host."""
        # Of the same class, which may be that of a driver; it has connections, so copy() refuses it.
        made: Self = object.__new__(type(self))
        vars(made).update(vars(self))
        made._clock, made._options = clock, options
        return made

    def _scope(self) -> Tenants:
        """Admit a call, each of which is about rows without tenant; return their scope.

        Raises:
            TenantScopeError: in a session of one tenant, which would keep nothing apart here.
        """
        # System scope sees every row, including rows without an owner.
        if self._access.binding.scope.purpose is not None:
            self._access.binding.state.check()
            return NO_TENANT
        return self._admit_scope(None, PURPOSE)

    def _touch(self, entity: Entity[R], key: str, change: Callable[[R], R]) -> R | None:
        now = self._clock.now()

        def revised(stored: R | None) -> R | None:
            return None if stored is None else touched(stored, change(stored), now)

        return self._revise(entity, self._scope(), (key,), revised)

    def _threshold(self, threshold: timedelta | None) -> timedelta:
        """Return the silence after which a session is stale."""
        return timedelta(seconds=self._options.stale_after_seconds) if threshold is None else threshold

    def _purge_ended(self, entity: Entity, now: datetime, batch_size: int) -> int:
        """Remove what ended longer ago than the host keeps it."""
        scope, instant = self._scope(), instant_argument(now, "now")
        age = timedelta(days=self._options.retention_days)
        # Nothing ended before the calendar began.
        before = instant - age if age <= instant - EARLIEST else EARLIEST
        return self._purge(entity, scope, before, batch_size) if age else 0
