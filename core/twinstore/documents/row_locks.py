"""Exclusive rights to rows between the units of one process, for stores that lock no rows themselves."""

from __future__ import annotations

import threading
import time
from threading import RLock, get_ident
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore.errors import ConcurrencyError
from twinstore.forks import Renewable, renew_in_child

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["RowLocks"]

# As long as the memory driver waits, so that rivals lose alike on both.
PATIENCE_SECONDS: Final = 5.0


class RowLocks(Renewable):
    """Who may write which row. Between processes the store compares when it commits: see the guide.

    Of two units of callers the first writer wins, so the other one loses at once instead of waiting for a
    lock that it could not use. A call that stands alone waits, and builds on what it has waited for.
    """

    def __init__(self, driver: str, patience: float = PATIENCE_SECONDS) -> None:
        """Take the name of the driver, for messages, and how long to wait, in seconds."""
        self._driver = driver
        self._patience = patience
        self.waiting = 0
        self._holders: dict[Hashable, tuple[object, int, bool]] = {}
        # Entered itself and not through the condition, whose ``with`` a signal could leave locked.
        self._lock = RLock()
        self._changed = threading.Condition(self._lock)
        renew_in_child(self)

    @override
    def renew(self) -> None:
        """Forget in a forked child the units of the parent."""
        self._holders, self._lock = {}, RLock()
        self._changed = threading.Condition(self._lock)

    def acquire(self, unit: object, row: Hashable, *, isolated: bool) -> None:
        """Give a unit the right to a row until :meth:`release`.

        Args:
            unit: whose right it is; it is asked for in the thread that will end the unit.
            row: what tells the row from others.
            isolated: the unit is one that a caller opened.

        Raises:
            ConcurrencyError: another unit wrote first, kept it too long, or would have to end in this thread.
        """
        thread = get_ident()
        with self._lock:
            deadline = time.monotonic() + self._patience
            while (found := self._holders.get(row, (unit, thread, isolated)))[0] is not unit:
                _, of_thread, of_caller = found
                remaining = deadline - time.monotonic()
                # The holder can only end in its own thread, so waiting for it in that thread would never end.
                if of_thread == thread or (isolated and of_caller) or remaining <= 0:
                    raise ConcurrencyError(
                        "Another unit of work has changed the same row and has not ended; try again later.",
                        driver=self._driver,
                    )
                self.waiting += 1
                try:
                    self._changed.wait(remaining)
                finally:
                    self.waiting -= 1
            self._holders[row] = (unit, thread, isolated)

    def release(self, unit: object) -> None:
        """Take back every right of a unit; a second call does nothing."""
        with self._lock:
            self._holders = {row: holder for row, holder in self._holders.items() if holder[0] is not unit}
            # All, because each waits for rows of its own, and only it can tell whether they are free now.
            self._changed.notify_all()
