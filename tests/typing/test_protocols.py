"""The repositories answer the Protocols as written: same names, order, kinds and defaults of parameters."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, get_type_hints

import pytest
from typing_extensions import is_protocol

from twinstore.scheduler import repositories

if TYPE_CHECKING:
    from twinstore.access import Access
    from twinstore.backend import ModuleBackend
    from twinstore.guard import GuardedAccess
    from twinstore.scheduler.repositories import Repositories
    from twinstore_memory.access import MemoryAccess
    from twinstore_memory.backend import MemoryBackend

    def the_backends_satisfy_their_protocol(
        memory: MemoryBackend[Repositories],
    ) -> tuple[ModuleBackend[Repositories], ...]:
        """Hold for both type checkers; nothing of it runs."""
        return (memory,)

    def every_access_satisfies_its_protocol(guard: GuardedAccess, memory: MemoryAccess) -> tuple[Access, ...]:
        """Hold for both type checkers; nothing of it runs."""
        return guard, memory


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
