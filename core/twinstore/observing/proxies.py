"""The parts of a session with somebody between them and the caller, who tells of every call.

    session of a module -> copy with an observed part in the place of each -> Notifier.run -> the part itself

A part is a repository or a service of any module on any driver, so what is observed is found by its class:
every public method. The parts among themselves do not meet the observed ones, nor does a method that calls
another one of its own object: what is told is what the host calls, once.
"""

from __future__ import annotations

import logging
from copy import copy
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache, wraps
from inspect import getattr_static, isfunction
from types import new_class
from typing import TYPE_CHECKING, Final, ParamSpec, Protocol, TypeVar, cast

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from twinstore.observing.notifier import Notifier

__all__ = ["observed", "observed_session"]

log = logging.getLogger("twinstore.observing")
P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

# Modules have some tens; a driver that makes classes as it goes must not fill the memory.
CLASSES: Final = 512


class Runner(Protocol):
    """Makes the calls of an observed part; as a rule the one who tells of them."""

    def run(self, name: str, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call to the operation of this name and return its answer."""
        ...


class Observed:
    """What an observed part has beside the class of the part itself, in names that no part has."""

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
        part: a repository, a service, or anything else that is asked by its methods; what has no public
            method of its own is returned as it is.
        notifier: tells of the calls.
    """
    kind = observed_class(type(part))  # type: ignore[arg-type]  # asks for the hash of a part, not of its class
    if kind is None:
        return part
    found = object.__new__(kind)
    object.__setattr__(found, "twinstore_part", part)
    object.__setattr__(found, "twinstore_notifier", notifier)
    return cast("T", found)


@lru_cache(maxsize=CLASSES)
def observed_class(kind: type[object]) -> type[Observed] | None:
    """Return the class of the observed parts of a class, ``None`` where there is nothing to observe.

    It derives from that class, so that ``isinstance`` says the same of both. A class that admits none below
    it, or that is a container of Python, is left alone with a warning: a host must not fail because it
    observes.
    """
    # Values, which may stand beside the parts.
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
        # What is observed may itself stand before something: a storage that is closed refuses its parts so.
        bases = (kind,) if issubclass(kind, Observed) else (Observed, kind)
        found = new_class(kind.__name__, bases, {}, lambda names: names.update(body))
        object.__new__(found)
    except TypeError as error:
        log.warning("Calls to %s.%s are not observed: %s.", kind.__module__, kind.__qualname__, error)
        return None
    return cast("type[Observed]", found)


def observed_method(name: str, method: Callable[..., object]) -> Callable[..., object]:
    """Return the method of an observed part that calls the one of the part and tells of it."""

    @wraps(method)
    def call(self: Observed, /, *args: object, **kwargs: object) -> object:
        return self.twinstore_notifier.run(name, getattr(self.twinstore_part, name), *args, **kwargs)

    return call
