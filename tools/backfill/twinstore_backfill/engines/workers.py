"""``workers://``: another program starts ``twinstore backfill work``; nothing is lent here."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from twinstore.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")


class Workers:
    """An engine without slots."""

    def __init__(self, address: str, options: Mapping[str, str]) -> None:
        """Refuse an address.

        Raises:
            ValidationError: there is one; workers find the job by its ledger.
        """
        if address or options:
            raise ValidationError("--engine workers:// takes no address: workers find the job by its ledger.")

    def slots(self) -> int:
        """Return 0."""
        return 0

    def submit(self, function: Callable[..., T], /, *arguments: Any) -> Future[T]:  # noqa: ANN401  # see Engine
        """Fail, because nobody is there."""
        del function, arguments
        found: Future[T] = Future()
        found.set_exception(ChildProcessError("workers:// runs nothing"))
        return found

    def close(self) -> None:
        """Leave the workers as they are."""
