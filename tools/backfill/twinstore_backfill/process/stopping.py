"""Stopping at a safe point: a switch that signals and failures may flip, and workers check."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import contextmanager
from threading import Event, main_thread
from threading import current_thread as this_thread
from types import FrameType
from typing import TYPE_CHECKING, Final, TypeVar

from twinstore.errors import LeaseLostError
from twinstore_backfill.outcome import InterruptedRunError
from twinstore_backfill.process.process import SIGNALS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

T = TypeVar("T")

AGAIN: Final = "Run the same command again."
Handler = Callable[[int, FrameType | None], object] | int | None
# What sets the handlers after a command, where those of before are not to come back.
_final_handlers: list[Callable[[], None]] = []


class StopRequestedError(Exception):
    """Unwinds a worker whose range must be rolled back."""


class StopSwitch:
    """Signals workers to stop; remembers the signal that caused it."""

    def __init__(self) -> None:
        self._event = Event()
        self.signal_number: int | None = None
        self._cause = ""

    @property
    def requested(self) -> bool:
        """Whether a stop was requested."""
        return self._event.is_set()

    def request(self, signal_number: int | None = None) -> None:
        """Ask for a stop."""
        # The first signal is kept: it decides the exit code, whatever follows it.
        self.signal_number = self.signal_number or signal_number
        self._event.set()

    def cancel(self) -> None:
        """Ask for a stop without a signal; the command ends as at Ctrl-C."""
        self._cause = self._cause or "Cancelled"
        self.request(signal.SIGINT)

    def check(self) -> None:
        """Unwind the caller when a stop is requested."""
        if self._event.is_set():
            raise StopRequestedError

    def pause(self, seconds: float) -> None:
        """Wait, but no longer than until a stop is requested; then unwind the caller."""
        self.wait(seconds)
        self.check()

    def wait(self, seconds: float) -> None:
        """Wait, but no longer than until a stop is requested."""
        self._event.wait(seconds)

    def raise_if_interrupted(self, advice: str) -> None:
        """Raise the error of an interrupted command if a signal requested the stop."""
        if self.signal_number is not None:
            cause = self._cause or f"Interrupted by {signal.Signals(self.signal_number).name}"
            raise InterruptedRunError(f"{cause}. {advice}", self.signal_number)


def set_final_handlers(settle: Callable[[], None]) -> None:
    """Name what handles signals after a command has its outcome, where its process ends then.

    Otherwise a late one would give an exit code that contradicts what was written.
    """
    _final_handlers.append(settle)


def checked(items: Iterable[T], stop: StopSwitch) -> Iterator[T]:
    """Yield items until a stop is requested; then unwind the caller."""
    for item in items:
        stop.check()
        yield item


@contextmanager
def stop_on_signals() -> Iterator[StopSwitch]:
    """Flip the switch at the first SIGINT or SIGTERM; a second one ends the process at once.

    Raises:
        InterruptedRunError: something failed after a signal had requested the stop.
    """
    switch = StopSwitch()
    # Only the main thread may set handlers; a host that calls from another one has its own.
    if this_thread() is not main_thread():
        yield switch
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def stop(number: int, _frame: FrameType | None) -> None:
        switch.request(number)
        for each in SIGNALS:
            # A second signal means that the safe point does not come; then the process ends as any other.
            signal.signal(each, signal.SIG_DFL)

    for number in SIGNALS:
        signal.signal(number, stop)
    try:
        yield switch
    except (LeaseLostError, InterruptedRunError):
        # That another process has taken over is what a user must know first.
        _restore(before)
        raise
    except Exception:
        _restore(before)
        switch.raise_if_interrupted(AGAIN)
        raise
    except BaseException:
        _restore(before)
        raise
    else:
        if _final_handlers:
            _final_handlers[-1]()
        else:
            _restore(before)


def _restore(handlers: Mapping[signal.Signals, Handler]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
