"""Errors can be pickled to another process and copied, with all their attributes."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from twinstore.bulk.corruption import CorruptionRefusedError
from twinstore.errors import (
    ConsentRequiredError,
    Effect,
    EffectKind,
    InvalidTransitionError,
    Outcome,
    TwinstoreError,
    UnavailableError,
    ValidationError,
)
from twinstore_backfill.outcome import InterruptedRunError
from twinstore_backfill.steps import DecisionNeededError, Question

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGES = (
    "twinstore",
    "twinstore_memory",
    "twinstore_mongo",
    "twinstore_postgres",
    "twinstore_filesystem",
    "twinstore_backfill",
    "twinstore_embedded",
)
WHERE = {"module": "library", "entity": "books", "key": "b-1", "driver": "Nowhere"}


class ForeignError(ValidationError):
    """A third-party error, with its own arguments."""

    def __init__(self, shelf: int, *, colour: str) -> None:
        super().__init__(f"shelf {shelf} is {colour}", entity="shelves")
        self.shelf = shelf
        self.colour = colour


class SlottedError(TwinstoreError):
    """A third-party error, with an attribute that is not in a dictionary."""

    __slots__ = ("weight",)

    def __init__(self, weight: int) -> None:
        super().__init__("too heavy")
        self.weight = weight


class FrozenError(TwinstoreError):
    """A third-party error whose own attributes are immutable.

    What Python and pickling extensions set on every exception (the cause, for example) stays free.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("__"):
            raise AttributeError(name)
        super().__setattr__(name, value)

    def __init__(self) -> None:
        Exception.__init__(self, "frozen")
        self.__dict__.update(WHERE)


class BothError(TwinstoreError, LookupError):
    """A third-party error that handlers for LookupError also catch."""


class OwnStateError(TwinstoreError):
    """A third-party error that defines its own state."""

    def __getstate__(self) -> list[object]:
        return [self.module]

    def __setstate__(self, state: object) -> None:
        assert isinstance(state, list)
        (self.module,) = state


def every_class() -> list[type[TwinstoreError]]:
    """Return all classes of errors in our packages."""
    for package in PACKAGES:
        module = import_module(package)
        for found in walk_packages(module.__path__, f"{package}."):
            if not found.name.endswith("__main__"):  # programs
                import_module(found.name)
    return [kind for kind in below(TwinstoreError) if kind.__module__.partition(".")[0] in PACKAGES]


def below(kind: type[TwinstoreError]) -> Iterator[type[TwinstoreError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from below(child)


def made(kind: type[TwinstoreError]) -> TwinstoreError:
    """Return an error of a class with every attribute it may have, and some more."""
    more: dict[str, Any] = {}
    if issubclass(kind, InvalidTransitionError):
        more = {"from_state": "queued", "to_state": "done"}
    elif issubclass(kind, UnavailableError):
        more = {"outcome": Outcome.NOT_APPLIED}
    elif issubclass(kind, ConsentRequiredError):
        more = {"effects": (Effect(kind=next(iter(EffectKind)), name="books", rows=3),)}
    if issubclass(kind, InterruptedRunError):
        error: TwinstoreError = kind("what was wrong", 15)
    elif issubclass(kind, CorruptionRefusedError):
        error = kind("a_constraint", unique=True)
    elif issubclass(kind, DecisionNeededError):
        error = kind(Question.ROWS, "what was wrong", options=("--accept-rows",), rules=("[[accept]]",))
    else:
        error = kind("what was wrong", **WHERE, **more)
    error.__dict__["noted"] = ["later", {"by": "a caller"}]
    error.add_note("on the second attempt")
    return error


Way = Callable[[TwinstoreError], TwinstoreError]


def ways() -> dict[str, Way]:
    """Return by name what carries an error elsewhere."""
    found: dict[str, Way] = {
        f"pickle {protocol}": partial(pickled, protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    }
    return found | {"copy": copy.copy, "deepcopy": copy.deepcopy}


def pickled(protocol: int, error: TwinstoreError) -> TwinstoreError:
    found: TwinstoreError = pickle.loads(pickle.dumps(error, protocol))  # noqa: S301  # its own
    return found


def test_every_class_of_error_can_be_pickled_and_copied_whole() -> None:
    classes = every_class()
    assert len(classes) > 25
    for kind in classes:
        error = made(kind)
        for way, through in ways().items():
            found = through(error)
            assert found is not error, (kind, way)
            assert type(found) is kind, (kind, way)
            assert (found.args, vars(found)) == (error.args, vars(error)), (kind, way)
            assert found.message == error.message


@pytest.mark.parametrize(
    "error",
    [ForeignError(3, colour="red"), SlottedError(80), FrozenError(), BothError("lost", key="b-1")],
    ids=lambda error: type(error).__name__,
)
def test_a_class_of_another_package_needs_nothing_extra(error: TwinstoreError) -> None:
    for way, through in ways().items():
        found = through(error)
        assert (type(found), str(found), vars(found)) == (type(error), str(error), vars(error)), way
        assert getattr(found, "weight", None) == getattr(error, "weight", None), way


def test_a_class_may_say_itself_what_it_is_made_of() -> None:
    for way, through in ways().items():
        found = through(OwnStateError("mine", module="library", key="left out"))
        assert (str(found), vars(found)) == ("mine", {"module": "library"}), way


def fail(kind: type[TwinstoreError]) -> NoReturn:
    """Raise an error in another process."""
    raise ForeignError(3, colour="red") if kind is ForeignError else made(kind)


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_an_error_of_a_process_pool_arrives_and_the_pool_goes_on(method: str) -> None:
    kinds = [InvalidTransitionError, UnavailableError, ConsentRequiredError, ForeignError]
    with ProcessPoolExecutor(1, mp_context=get_context(method)) as pool:
        for kind in kinds:
            error = pool.submit(fail, kind).exception()
            wanted = ForeignError(3, colour="red") if kind is ForeignError else made(kind)
            assert type(error) is kind
            assert vars(error) == vars(wanted)
        assert pool.submit(abs, -1).result() == 1
