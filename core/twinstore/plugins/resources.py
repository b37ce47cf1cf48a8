"""What the modules of one storage share: clients and pools, made once and closed in reverse."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar, cast

from typing_extensions import override

from twinstore.errors import ConfigurationError
from twinstore.runtime.forks import ForkSafeLock, Renewable, renew_in_child, retain

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["SharedResources"]


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Resource:
    """What modules share, how it is closed, and whether it renews itself in a forked child."""

    value: object
    close: Callable[[], object]
    renews_itself: bool


class SharedResources(Renewable):
    """Clients and pools shared by the modules of one storage, closed with it in reverse order.

    In a forked child they are forgotten without being closed, because their connections are the parent's;
    the next call of ``share`` creates a new one.
    """

    def __init__(self) -> None:
        self._resources: dict[Hashable, Resource] = {}
        self._lock = ForkSafeLock()
        self._closed = False
        renew_in_child(self)

    def share(
        self,
        key: Hashable,
        create: Callable[[], T],
        close: Callable[[T], object],
        *,
        renews_itself: bool = False,
    ) -> T:
        """Return the resource of this key, creating it at the first call.

        Args:
            key: identifies this resource.
            create: makes it.
            close: ends it; never called in a forked child for what the parent made.
            renews_itself: the resource renews itself in a forked child, so it is not forgotten there.

        Raises:
            ConfigurationError: the storage is closed; nothing would close a resource that a call still under
                way creates now.
        """
        with self._lock:
            if self._closed:
                raise ConfigurationError("This storage is closed; open a new one.")
            # Created under the lock, so that two modules that open at the same moment do not connect twice.
            if key not in self._resources:
                made = create()
                self._resources[key] = Resource(made, partial(close, made), renews_itself)
            return cast("T", self._resources[key].value)  # one key always has one type

    @override
    def renew(self) -> None:
        """Forget in a forked child what has connections of the parent."""
        # Kept from the garbage collector, whose finalisers would say good-bye to the parent's server.
        retain(self._resources)
        self._resources = {key: found for key, found in self._resources.items() if found.renews_itself}

    def close(self) -> None:
        """Close what was created here; a second call does nothing."""
        # An exit stack, because one resource that fails to close must not keep the others open.
        with self._lock, ExitStack() as closing:
            self._closed = True
            for resource in self._resources.values():
                closing.callback(resource.close)
            self._resources.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close what was created here."""
        self.close()
