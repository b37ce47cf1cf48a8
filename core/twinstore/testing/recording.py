"""Observes the calls of repositories and services while a case of a kit runs.

Every session of a storage, and the storage itself, gets its repositories from ``session_over``. While a run
is recorded, what that returns is wrapped, so a call counts when a case makes it, and not when a service calls
a repository.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Self, cast

if TYPE_CHECKING:
    from types import TracebackType

    import pytest

    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore.storage.module import ModuleStorage
    from twinstore.testing.methods import Part

from twinstore.testing.methods import parts_of

__all__ = ["Calls", "record_sessions"]

Seen = Callable[[str, object], object]


class Calls:
    """The calls that the running case makes on the driver that it is about.

    Attributes:
        observing: whether storages that are opened now belong to a kit; others are left as they are.
    """

    def __init__(self) -> None:
        self.observing = False
        self._driver: str | None = None
        self._answered: dict[str, bool] = {}

    def begin(self, driver: str) -> None:
        """Start with a case about a driver; calls on others, such as the target of a copy, are left out."""
        self._driver, self._answered = driver, {}

    def end(self) -> dict[str, bool]:
        """Return the methods that were called since, and whether any call of each was answered."""
        answered, self._driver = self._answered, None
        return answered

    def tell(self, driver: str, method: str, *, answered: bool) -> None:
        """Note a call; between cases nothing is noted. Threads of a case may call at once."""
        if driver == self._driver:
            self._answered[method] = answered or self._answered.get(method, False)


class Observed:
    """Stands for a session, a repository, a service or a handle, and shows what is taken from it."""

    __slots__ = ("_inner", "_seen")

    def __init__(self, inner: object, seen: Seen) -> None:
        self._inner = inner
        self._seen = seen

    def __getattr__(self, name: str) -> object:
        return self._seen(name, getattr(self._inner, name))

    def __enter__(self) -> Self:
        """Enter a handle."""
        self._inner.__enter__()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # a handle has it, and nothing else is entered
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> object:
        """Leave a handle."""
        leave = cast("Callable[..., object]", getattr(self._inner, "__exit__"))  # noqa: B009  # of a handle
        return leave(kind, error, trace)


def record_sessions(spec: ModuleSpec[object], calls: Calls, patch: pytest.MonkeyPatch) -> None:
    """Let calls of all sessions of a module be noted, until the patch is undone.

    Args:
        spec: a module that has a storage and a session.
        calls: is told of each call.
        patch: changes the class of the storage.
    """
    assert spec.storage is not None
    plain = cast("type[ModuleStorage[object, object]]", spec.storage).session_over
    parts = parts_of(spec)

    @wraps(plain)
    def session_over(
        storage: ModuleStorage[object, object], repositories: object, *, in_unit: bool = False
    ) -> object:
        session = plain(storage, repositories, in_unit=in_unit)
        if not calls.observing:
            return session
        return Observed(session, partial(_of_session, parts, partial(_note, calls, storage.driver)))

    patch.setattr(spec.storage, "session_over", session_over)


def _note(calls: Calls, driver: str, method: str, answered: bool) -> None:  # noqa: FBT001  # bound by partial
    calls.tell(driver, method, answered=answered)


def _of_session(
    parts: dict[str, Part], note: Callable[[str, bool], None], name: str, found: object
) -> object:
    return Observed(found, partial(_of_part, parts[name], note)) if name in parts else found


def _of_part(part: Part, note: Callable[[str, bool], None], name: str, found: object) -> object:
    """Return a method of a part that tells what it was answered with, or an attribute as it is."""
    returns = part.methods.get(name)
    if returns is None:
        return found
    handle = part.handles.get(returns.partition(" ")[0])

    @wraps(cast("Callable[..., object]", found))
    def call(*args: object, **kwargs: object) -> object:
        note(f"{part.prefix}.{name}", False)  # noqa: FBT003  # until it is answered
        answer = cast("Callable[..., object]", found)(*args, **kwargs)
        note(f"{part.prefix}.{name}", returns == "None" or bool(answer))
        return (
            answer if handle is None or answer is None else Observed(answer, partial(_of_part, handle, note))
        )

    return call
