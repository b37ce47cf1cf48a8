"""The repositories answer the Protocols as written: same names, order, kinds and defaults of parameters."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Final, get_type_hints

import pytest
from typing_extensions import is_protocol

import twinstore_memory
import twinstore_mongo
import twinstore_postgres
from twinstore.scheduler import repositories

if TYPE_CHECKING:
    from types import ModuleType

    from twinstore.access.guard import GuardedAccess
    from twinstore.access.protocol import Access
    from twinstore.plugins.backend import ModuleBackend
    from twinstore.scheduler.repositories import Repositories
    from twinstore_memory.access import MemoryAccess
    from twinstore_memory.backend import MemoryBackend

    def the_backends_satisfy_their_protocol(
        memory: MemoryBackend[Repositories],
    ) -> tuple[ModuleBackend[Repositories], ...]:
        """Hold for both type checkers; none of it runs."""
        return (memory,)

    def every_access_satisfies_its_protocol(guard: GuardedAccess, memory: MemoryAccess) -> tuple[Access, ...]:
        """Hold for both type checkers; none of it runs."""
        return guard, memory


DRIVERS: Final = (twinstore_memory, twinstore_mongo, twinstore_postgres)
IMPLEMENTS: Final = re.compile(r"Implements :class:`~(?P<module>[\w.]+)\.(?P<name>\w+)`")


def implementations() -> dict[str, tuple[type, type]]:
    """Return the classes of the drivers that say which Protocol they implement, with the Protocol."""
    found: dict[str, tuple[type, type]] = {}
    for driver in DRIVERS:
        for item in walk_packages(driver.__path__, f"{driver.__name__}."):
            for cls in vars(import_module(item.name)).values():
                says = IMPLEMENTS.match((isinstance(cls, type) and cls.__doc__) or "")
                if says is not None and cls.__module__ == item.name:
                    protocol = getattr(import_module(says["module"]), says["name"])
                    found[f"{cls.__name__} {protocol.__name__}"] = (cls, protocol)
    return found


IMPLEMENTATIONS: Final = implementations()


@pytest.mark.parametrize("name", sorted(IMPLEMENTATIONS))
def test_a_driver_inherits_what_it_says_to_implement(name: str) -> None:
    cls, protocol = IMPLEMENTATIONS[name]
    assert protocol in cls.__mro__


# Of a store of documents core implements these.
OF_DOCUMENTS: Final = {"ModuleBackend", "RangeWriter"}


@pytest.mark.parametrize(
    ("driver", "protocol"),
    [
        pytest.param(driver, protocol, id=f"{protocol}-{driver.__name__}")
        for protocol in ("Access", "BulkPort", "BulkView", "Initializer", "ModuleBackend", "RangeWriter")
        for driver in DRIVERS
        if driver is not twinstore_memory or protocol not in OF_DOCUMENTS
    ],
)
def test_every_driver_says_what_implements_the_driver_interface(driver: ModuleType, protocol: str) -> None:
    assert [
        cls
        for cls, found in IMPLEMENTATIONS.values()
        if found.__name__ == protocol and cls.__module__.startswith(driver.__name__)
    ]


PAIRS: list[tuple[type, type]] = [
    (base, answer)
    for answer in get_type_hints(repositories.Repositories).values()
    for base in answer.__bases__
    if is_protocol(base)
]


def methods_of(protocol: type) -> list[str]:
    return [name for name, value in vars(protocol).items() if inspect.isfunction(value) and name[0] != "_"]


@pytest.mark.parametrize(("protocol", "answer"), PAIRS, ids=lambda item: item.__name__)
def test_a_repository_has_the_signatures_of_its_protocol(protocol: type, answer: type) -> None:
    assert methods_of(protocol)
    for name in methods_of(protocol):
        wanted, given = (inspect.signature(getattr(owner, name)) for owner in (protocol, answer))
        shown = [
            [
                (item.name, item.kind, item.default, str(item.annotation))
                for item in signature.parameters.values()
            ]
            for signature in (wanted, given)
        ]
        assert shown[0] == shown[1], f"{answer.__name__}.{name}"
