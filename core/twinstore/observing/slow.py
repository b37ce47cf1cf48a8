"""The observer that names slow calls in the log of the service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore.errors import ConfigurationError
from twinstore.observing.observer import Ending, Observer
from twinstore.runtime.formatting import safe_repr
from twinstore.runtime.service_log import LOG_INTERVAL_SECONDS, Limiter, log, suppressed_text

if TYPE_CHECKING:
    from twinstore.observing.observer import Call, Operation


def log_slow_call(call: Call, limiter: Limiter) -> None:
    """Say that a call was slow."""
    suppressed = limiter.passes(call[:4])
    if suppressed is not None:
        log.warning(
            "%s.%s.%s on %s took %.2f s (%s)%s",
            call.module,
            call.entity,
            call.operation,
            call.driver,
            call.seconds,
            call.outcome.value,
            suppressed_text(suppressed),
            extra={
                "twinstore_module": call.module,
                "twinstore_entity": call.entity,
                "twinstore_operation": call.operation,
                "twinstore_driver": call.driver,
                "twinstore_outcome": call.outcome.value,
                "twinstore_seconds": call.seconds,
                "twinstore_left_out": suppressed,
            },
        )


SLOW_SECONDS: Final = 1.0


class SlowCalls(Observer):
    """Writes a line at level WARNING for each operation whose calls are slow. Thread-safe.

    At most one a minute for each operation, with the number of lines that were suppressed.
    """

    def __init__(self, seconds: float = SLOW_SECONDS, *, pause: float = LOG_INTERVAL_SECONDS) -> None:
        """Take from which length on a call is slow, and how long an operation is silent after a line.

        Raises:
            ConfigurationError: one of them is no number of seconds.
        """
        for name, value in {"seconds": seconds, "pause": pause}.items():
            if type(value) not in {int, float} or not value >= 0:
                raise ConfigurationError(
                    f"Argument {name} should be a number from 0, not {safe_repr(value)}."
                )
        self._seconds = seconds
        self._limiter = Limiter(pause)

    @override
    def started(self, operation: Operation) -> Ending:
        del operation
        return self._ended

    def _ended(self, call: Call) -> None:
        if call.seconds >= self._seconds:
            log_slow_call(call, self._limiter)
