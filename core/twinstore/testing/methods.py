"""Which methods the cases of a kit call on a driver: what a module offers against what was called.

A method is named by module, attribute of a session and name: ``library.books.get``. Those of a handle that a
call hands out bear its class: ``library.loans.LoanHandle.renew``.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final

from twinstore.codegen.aio import facades
from twinstore.testing.signatures import annotation_text

if TYPE_CHECKING:
    from twinstore.codegen.aio import Facade
    from twinstore.plugins.module_spec import ModuleSpec

__all__ = ["Case", "Part", "matrix_of", "method_names", "missing_methods", "parts_of"]

PASSED: Final = "passed"
Matrix = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Ids of cases, by method and driver."""


@dataclass(frozen=True, slots=True)
class Part:
    """A Protocol of which calls are observed.

    Attributes:
        prefix: what the names of its methods begin with.
        methods: the return annotation of each public method, as it is written, by name.
        handles: the Protocols that its methods hand out, by class.
    """

    prefix: str
    methods: Mapping[str, str]
    handles: Mapping[str, Part]

    def names(self) -> Iterator[str]:
        """Yield the names of its methods, and of its handles."""
        yield from (f"{self.prefix}.{name}" for name in self.methods)
        for handle in self.handles.values():
            yield from handle.names()


@dataclass(slots=True)
class Case:
    """What became of one case of a run.

    Attributes:
        id: its node id.
        module: the module whose kit it belongs to, ``None`` outside kits.
        driver: the driver of its storage, ``None`` outside kits.
        outcome: ``passed``, ``failed`` or ``skipped``.
        seconds: of its set-up, its call and its tear-down.
        methods: those it called on the driver; whether any call was answered with something.
    """

    id: str
    module: str | None = None
    driver: str | None = None
    outcome: str = PASSED
    seconds: float = 0.0
    methods: Mapping[str, bool] | None = None


def parts_of(spec: ModuleSpec[object]) -> dict[str, Part]:
    """Return the repositories and services of a session of a module, by attribute."""
    return {facade.attribute: _part(spec.name, facade) for facade in facades(spec)}


def method_names(spec: ModuleSpec[object]) -> tuple[str, ...]:
    """Return the name of every public method that a module offers, in the order of its session."""
    return tuple(name for part in parts_of(spec).values() for name in part.names())


def _part(module: str, facade: Facade) -> Part:
    prefix, source = f"{module}.{facade.attribute}", import_module(facade.module)
    handles = {
        definition.name: Part(
            f"{prefix}.{definition.name}", _returns(getattr(source, definition.name)), handles={}
        )
        for definition in facade.handles
    }
    return Part(prefix, _returns(getattr(source, facade.protocol)), handles)


def _returns(protocol: type) -> dict[str, str]:
    return {
        name: annotation_text(inspect.signature(function).return_annotation)
        for name, function in inspect.getmembers(protocol, inspect.isfunction)
        if not name.startswith("_")
    }


def matrix_of(cases: Iterable[Case], methods: Iterable[str], drivers: Iterable[str]) -> Matrix:
    """Return the cases that exercise each method on each driver, sorted.

    A case exercises a method when it passed and a call of it was answered: with anything but ``None``,
    ``False``, 0 and what is empty, unless the method returns nothing. That a call was refused, or found
    nothing, shows little of what it is for.
    """
    found: dict[str, dict[str, list[str]]] = {
        method: {driver: [] for driver in sorted(drivers)} for method in methods
    }
    for case in cases:
        for method, answered in (case.methods or {}).items():
            if case.outcome == PASSED and answered and case.driver in found.get(method, {}):
                found[method][case.driver].append(case.id)
    return {
        method: {driver: tuple(sorted(ids)) for driver, ids in by_driver.items()}
        for method, by_driver in found.items()
    }


def missing_methods(matrix: Matrix) -> tuple[tuple[str, str], ...]:
    """Return the pairs of method and driver that no case exercises."""
    return tuple(
        (method, driver)
        for method, by_driver in matrix.items()
        for driver, ids in by_driver.items()
        if not ids
    )
