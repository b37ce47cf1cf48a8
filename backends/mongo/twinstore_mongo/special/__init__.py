"""What this driver does for one module alone; none of it is needed for a right answer.

The file of a module has its name. Further ones, where one would be too long, begin with it:
``<module>_<words>``.
A file may have ``OPERATIONS``, special statements for hot operations, and ``CARRY_OVERS``.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import ModuleType

    from twinstore_mongo.access.access import Special
    from twinstore_mongo.client.database import OpenDatabase

__all__ = ["CarryOver", "carry_overs_of", "specials_of"]


@dataclass(frozen=True, slots=True)
class CarryOver:
    """Documents of an earlier version, brought to where this one keeps them by one aggregation.

    It may be repeated: its last stage keeps every existing document. The script for administrators has the
    same stages, so they are plain JSON.
    """

    source: str
    pipeline: Sequence[Mapping[str, Any]]

    def run(self, store: OpenDatabase) -> None:
        """Let the server do it; a source that is absent or empty brings nothing."""
        # On the server alone, so the documents never travel; it may take longer than any call of a service.
        with store.with_index_timeout():
            store.collection(self.source).aggregate(list(self.pipeline), allowDiskUse=True)


def carry_overs_of(module: str) -> Mapping[str, tuple[CarryOver, ...]]:
    """Return what the steps of a module bring over from an earlier version, by name of the step.

    None where the module has no file, or the file none of them.
    """
    steps: dict[str, tuple[CarryOver, ...]] = {}
    for file in _files_of(module):
        steps |= getattr(file, "CARRY_OVERS", {})
    return steps


def specials_of(module: str) -> Mapping[str, Special]:
    """Return the statements of a module by operation; none where it has no file."""
    operations: dict[str, Special] = {}
    for file in _files_of(module):
        operations |= getattr(file, "OPERATIONS", {})
    return operations


def _files_of(module: str) -> Iterator[ModuleType]:
    for found in iter_modules(__path__):
        if found.name == module or found.name.startswith(f"{module}_"):
            yield import_module(f"{__name__}.{found.name}")
