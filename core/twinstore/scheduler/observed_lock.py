"""A held lock that reports its renewals and its release to the observers of its storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from twinstore.scheduler.held_lock import HeldLock

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime, timedelta

    from twinstore.observing.observer import Notifier
    from twinstore.scheduler.held_lock import Contender
    from twinstore.scheduler.locks import LockInfo


class ObservedLock(HeldLock):
    """Reports renewals, also by ``keep_alive``, and the release, also at the end of a block."""

    def __init__(
        self,
        contender: Contender,
        owned: LockInfo,
        lease: timedelta,
        requested_at: float,
        check: Callable[[], object],
        *,
        notifier: Notifier,
    ) -> None:
        """Take the ownership as :class:`HeldLock` does, and the notifier."""
        super().__init__(contender, owned, lease, requested_at, check)
        self._notifier = notifier

    @override
    def renew(self, *, lease: timedelta | None = None) -> datetime:
        return self._notifier.run("renew", super().renew, lease=lease)

    @override
    def release(self) -> bool:
        return self._notifier.run("release", super().release)
