"""The modules beside the scheduler: what the demo writes into each, and from where to where it moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from twinstore_backfill.demo.packs import read_packs, write_packs
from twinstore_backfill.demo.tracked import read_work, write_work

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["OTHERS", "OtherModule", "with_files_below"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherModule:
    """A module that the demo moves.

    Attributes:
        name: its name in commands.
        section: its name in the settings.
        source, target: the values of its switch before and after.
        wrote: what the demo says that it writes.
        write: writes through the repositories of a storage.
        read: returns what a host would show, which must be the same after the switch.
    """

    name: str
    section: str
    source: str
    target: str
    wrote: str
    write: Callable[[Any], None]
    read: Callable[[Any], object]


OTHERS: Final = (
    OtherModule(
        name="tracking",
        section="Tracking",
        source="Mongo",
        target="Postgres",
        wrote="sessions, tasks and machines",
        write=write_work,
        read=read_work,
    ),
    OtherModule(
        name="taskrunner",
        section="TaskRunner",
        source="Filesystem",
        target="Postgres",
        wrote="pack runs with logs, artifacts and approvals as files",
        write=write_packs,
        read=read_packs,
    ),
)


def with_files_below(settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return settings in which the task runner keeps its files below a folder."""
    return {**settings, "TaskRunner": {"Storage": {"Filesystem": {"Root": str(folder / "task-runner")}}}}
