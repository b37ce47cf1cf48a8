"""Every public method of a module with good arguments, and what no argument should be."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pydantic

from twinstore.catalog.tenancy import ALL_TENANTS
from twinstore.codegen.aio import facades
from twinstore.errors import TwinstoreError
from twinstore.models.canonical import CanonicalModel
from twinstore.testing.examples import NAME
from twinstore.testing.signatures import annotation_text

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore.testing.examples import ModuleExamples

Make = Callable[[], object]

TENANT: Final = "acme"
NOW: Final = datetime(2026, 3, 1, tzinfo=UTC)


class CallerError(Exception):
    """Raised by code of the caller, who gets it back as it is."""


class Text(str):
    """A text type from outside the library."""

    __slots__ = ()


class Instant(datetime):
    """An instant type from outside the library."""


def failing() -> Iterator[object]:
    """Fail when the second item is requested."""
    yield from map(fail, [5])


def fail(given: object) -> NoReturn:
    """Be code of the caller that fails."""
    raise CallerError(given)


def deep() -> list[Any]:
    """Return a list that is nested deeper than Python recurses."""
    found: list[Any] = []
    for _ in range(20_000):
        found = [found]
    return found


THING: Final = object()
DEEP: Final = deep()
# Made again for each call, because some are used up.
ODD: Final[Mapping[str, Make]] = {
    "None": lambda: None,
    "a number": lambda: 5,
    "a negative number": lambda: -1,
    "a huge number": lambda: 10**30,
    "just above 63 bits": lambda: 2**63,
    "NaN": lambda: math.nan,
    "infinity": lambda: math.inf,
    "a flag": lambda: True,
    "an empty text": lambda: "",
    "U+0000": lambda: "a\x00b",
    "a surrogate": lambda: "a\ud800",
    "a long text": lambda: "x" * 100_000,
    "a text of another class": lambda: Text(" id-1 "),
    "bytes": lambda: b"id-1",
    "a list": list,
    "a list of lists": lambda: [[["x"]]],
    "a list without end": lambda: DEEP,
    "a dictionary": dict,
    "an object": lambda: THING,
    "a class": lambda: CanonicalModel,
    "a function": lambda: print_nothing,
    "a generator that fails": failing,
    "a naive instant": lambda: NOW.replace(tzinfo=None),
    "an instant of another class": lambda: Instant(2026, 3, 1, tzinfo=UTC),
    "a day": lambda: date(2026, 3, 1),
    "the last instant": lambda: datetime.max.replace(tzinfo=UTC),
    "the first instant": lambda: datetime.min.replace(tzinfo=UTC),
    "the longest time": lambda: timedelta.max,
    "less than no time": lambda: timedelta(days=-1),
}


def print_nothing(*given: object) -> None:
    """Be a function of any number of arguments."""
    del given


@dataclass(frozen=True, slots=True)
class OddCall:
    """One call with one odd argument.

    Attributes:
        part: the attribute of the session.
        method: its method.
        parameter: which argument is odd.
        odd: its name.
        arguments: returns all of them.
    """

    part: str
    method: str
    parameter: str
    odd: str
    arguments: Callable[[], dict[str, object]]

    @property
    def name(self) -> str:
        return f"{self.part}.{self.method}({self.parameter}={self.odd})"


def odd_calls(spec: ModuleSpec[object], examples: ModuleExamples) -> Iterator[OddCall]:
    """Yield every public method of every part of a session, with each argument odd in each way."""
    for facade in facades(spec):
        protocol = getattr(import_module(facade.module), facade.protocol)
        for name, function in inspect.getmembers(protocol, inspect.isfunction):
            if name.startswith("_"):
                continue
            parameters = list(inspect.signature(function).parameters.values())[1:]
            good = Good(spec, examples, import_module(facade.module))
            base = {
                item.name: good.value(item.name, annotation_text(item.annotation))
                for item in parameters
                if item.default is item.empty
            }
            for item in parameters:
                for kind, make in odd_values(annotation_text(item.annotation), good):
                    yield OddCall(
                        facade.attribute, name, item.name, kind, partial(with_one, base, item.name, make)
                    )


def with_one(base: Mapping[str, object], name: str, make: Make) -> dict[str, object]:
    """Return good arguments with one that is odd."""
    return {**base, name: make()}


def calls_of_a_storage() -> Iterator[tuple[str, Callable[[Any], object]]]:
    """Yield what opens sessions and units, and what else a storage offers, with each argument odd."""
    opening: dict[str, Callable[[Any, Any], Any]] = {
        "sessions.open(tenant_id)": lambda storage, odd: storage.sessions.open(odd),
        "sessions.open(purpose)": lambda storage, odd: storage.sessions.open(purpose=odd),
        "sessions.open(causal_consistency)": lambda storage, odd: storage.sessions.open(
            TENANT, causal_consistency=odd
        ),
        "transaction(tenant_id)": lambda storage, odd: storage.transaction(odd),
        "transaction(purpose)": lambda storage, odd: storage.transaction(purpose=odd),
        "transaction(read_only)": lambda storage, odd: storage.transaction(TENANT, read_only=odd),
    }
    calling: dict[str, Callable[[Any, Any], Any]] = {
        "transact(fn)": lambda storage, odd: storage.transact(odd, tenant_id=TENANT),
        "transact(tenant_id)": lambda storage, odd: storage.transact(print_nothing, tenant_id=odd),
        "transact(purpose)": lambda storage, odd: storage.transact(print_nothing, purpose=odd),
        "transact(attempts)": lambda storage, odd: storage.transact(
            print_nothing, tenant_id=TENANT, attempts=odd
        ),
        "bind(handle)": lambda storage, odd: storage.bind(odd, TENANT),
    }
    slow: dict[str, Callable[[Any, Any], Any]] = {
        "ensure_migrations(accept)": lambda storage, odd: storage.initializer.ensure_migrations(accept=odd),
        "ensure_migrations(release)": lambda storage, odd: storage.initializer.ensure_migrations(release=odd),
        "verify(additions)": lambda storage, odd: storage.initializer.verify(additions=odd),
    }
    for method, call in slow.items():
        for name in ("None", "a number", "an object", "a list of lists", "a text of another class"):
            yield f"{method} {name}", partial(called, call, ODD[name])
    for name, make in ODD.items():
        for method, call in opening.items():
            yield f"{method} {name}", partial(entered, call, make)
        for method, call in calling.items():
            if not (method == "transact(fn)" and name == "a class"):
                yield f"{method} {name}", partial(called, call, make)


def called(call: Callable[[Any, Any], object], make: Make, storage: object) -> object:
    """Make a call with an odd argument."""
    return call(storage, make())


def entered(call: Callable[[Any, Any], AbstractContextManager[object]], make: Make, storage: object) -> None:
    """Open a block with an odd argument and leave it."""
    with call(storage, make()):
        pass


def odd_values(annotation: str, good: Good) -> Iterator[tuple[str, Make]]:
    """Yield what an argument may be; an options class also with each of its fields odd."""
    # An exception from a class or a function of the caller belongs to the caller.
    yield from (
        (name, make) for name, make in ODD.items() if name != "a class" or "Callable" not in annotation
    )
    kind = good.named(annotation)
    if isinstance(kind, type) and issubclass(kind, CanonicalModel):
        yield "its class", lambda: kind
        yield "a list of its class", lambda: [kind]
    if annotation.startswith(("Iterable", "Sequence", "tuple", "Collection")):
        for name, make in ODD.items():
            yield f"a list with {name}", partial(listed, make)
        yield "a set of unlike things", lambda: {"x", 5, None}
    if kind is not None and kind.__name__.endswith("QueryOptions"):
        for field in inspect.signature(kind).parameters:
            for name, make in ODD.items():
                yield f"{field}={name}", partial(Built, kind, field, make)
            for name in ("a surrogate", "a dictionary", "a list", "a number", "None"):
                yield f"{field}=[{name}]", partial(Built, kind, field, partial(listed, ODD[name]))


def listed(make: Make) -> list[object]:
    """Return a list with an odd item."""
    return [make()]


@dataclass(frozen=True)
class Built:
    """Options that are made in the call, because they may refuse what they are given."""

    kind: type
    field: str
    value: Make

    def make(self) -> object:
        return self.kind(**{self.field: self.value()})


class Good:
    """Good arguments, found by name and annotation."""

    def __init__(self, spec: ModuleSpec[object], examples: ModuleExamples, module: object) -> None:
        self._spec = spec
        self._models = {item.entity.model.__name__: item for item in examples.examples}
        self._module = module

    def named(self, annotation: str) -> type | None:
        """Return the class that an annotation begins with."""
        word = re.match(r"\w+", annotation)
        name = word.group() if word else ""
        for place in (
            self._module,
            import_module(self._spec.package),
            import_module(f"{self._spec.package}.enums"),
        ):
            found = getattr(place, name, None)
            if isinstance(found, type):
                return found
        return None

    def value(self, name: str, annotation: str) -> object:
        """Return a good argument."""
        if name == "tenant_id":
            return ALL_TENANTS if "AllTenants" in annotation and "str" not in annotation else TENANT
        word = annotation.partition(" ")[0].partition("[")[0]
        if word in self._models:
            return self._models[word].small(TENANT, NAME)
        kind = self.named(annotation)
        if isinstance(kind, type) and issubclass(kind, StrEnum):
            return next(iter(kind))
        inner = re.match(r"(?:Iterable|Sequence|Collection|tuple)\[(\w+)", annotation)
        if inner:
            return [self.value(name, inner.group(1))]
        simple: dict[str, object] = {
            "str": "id-1",
            "int": 10,
            "bool": False,
            "bytes": b"x",
            "datetime": NOW,
            "timedelta": timedelta(0) if "wait" in name or "timeout" in name else timedelta(seconds=30),
            "Callable": print_nothing,
            "Mapping": {},
            "JsonObject": {},
            "dict": {},
            "float": 0.0,
        }
        return simple.get(word)


def ending(call: OddCall, storage: object) -> object:
    """Return how a call ends: its error, or that it had none.

    Anything else than an error of ours, of pydantic from a constructor, or of the caller is passed on.
    """
    arguments = call.arguments()
    try:
        for name, value in arguments.items():
            if isinstance(value, Built):
                arguments[name] = value.make()
    except pydantic.ValidationError as error:
        return type(error).__name__
    method = getattr(getattr(storage, call.part), call.method)
    return outcome(lambda _: released(method(**arguments)), storage)


def released(found: object) -> None:
    """Give back a lock, for which the next call would wait."""
    release = getattr(found, "release", None)
    if callable(release):
        release()


def outcome(action: Callable[[object], object], storage: object) -> object:
    """Return how an action ends."""
    try:
        action(storage)
    except TwinstoreError as error:
        return type(error).__name__, error.message
    except CallerError:
        return "of the caller"
    return "fine"
