"""Plug-ins by entry point: who registers a name, and the sentences that all kinds of plug-ins share.

Drivers and modules come through the same door. A name belongs to one distribution, it is compared without
case, and a plug-in that cannot be loaded is an error of its own that takes nobody else down.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Final

from typing_extensions import override

from twinstore.errors import ConfigurationError

__all__ = ["Registration", "brief", "did_you_mean", "near_matches", "registrations", "the_only"]

SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class Registration:
    """One entry point: somebody says to be the plug-in of this name.

    Attributes:
        point: the entry point.
        kind: what is plugged in, ``driver`` or ``module``.
        name: the name for people.
    """

    point: EntryPoint
    kind: str
    name: str

    @property
    def key(self) -> str:
        """The name for comparisons."""
        return self.point.name.casefold()

    @property
    def distribution(self) -> str:
        """Name of the distribution."""
        return self.point.dist.name if self.point.dist else ""

    @property
    def version(self) -> str:
        """Version of the distribution."""
        return self.point.dist.version if self.point.dist else ""

    @override
    def __str__(self) -> str:
        return (
            f"{self.name} ({self.distribution or 'unknown distribution'} {self.version}: {self.point.value})"
        )

    def error(self, problem: str) -> ConfigurationError:
        """Return an error about this plug-in."""
        return failure(f"The {self.kind} {self} {problem}", self.kind, self.name)


def registrations(group: str, kind: str, spellings: Mapping[str, str] | None = None) -> list[Registration]:
    """Return all registrations of a group in the order of their distributions, without importing any.

    Args:
        group: the group of entry points.
        kind: what is plugged in.
        spellings: by folded name, how people write it.
    """
    known = spellings or {}
    return [
        Registration(point, kind, known.get(point.name.casefold(), point.name))
        for point in _points(group, _installed())
    ]


# A load of settings asks several times, and each time many files would be read. Another state of the path
# replaces what is kept.
@lru_cache(maxsize=4)
def _points(group: str, installed: Hashable) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group."""
    del installed
    return tuple(entry_points(group=group))


def _installed() -> Hashable:
    """Return what changes when a distribution is installed or removed: the path, and its folders.

    As :mod:`importlib.metadata` does it, which remembers the distributions of a folder by its time of change.
    """
    return tuple((place, _changed(place or ".")) for place in sys.path), *map(id, sys.meta_path)


def _changed(place: str) -> tuple[int, int, int] | None:
    try:
        found = Path(place).stat()
    except OSError:
        return None  # many paths name folders that do not exist
    return found.st_dev, found.st_ino, found.st_mtime_ns


def the_only(
    matching: Sequence[Registration], name: str, known: Sequence[Registration], kind: str
) -> Registration:
    """Return the one registration of a name.

    Raises:
        ConfigurationError: nobody registers it, or more than one does.
    """
    if not matching:
        names = sorted({registration.name for registration in known}, key=str.casefold)
        raise failure(
            f"Unknown {kind} {name!r}.{did_you_mean(name, names)} "
            f"Installed: {', '.join(names) or 'none'}. "
            "Correct the name or install the distribution that provides it.",
            kind,
            name,
        )
    if len(matching) > 1:
        listed = ", ".join(sorted(map(str, matching)))
        raise failure(
            f"The {kind} name {matching[0].name!r} is registered more than once: {listed}. "
            "Uninstall all but one.",
            kind,
            matching[0].name,
        )
    return matching[0]


def failure(message: str, kind: str, name: str) -> ConfigurationError:
    """Return the error of a plug-in, with its name where errors have it."""
    if kind == "driver":
        return ConfigurationError(message, driver=name)
    return ConfigurationError(message, module=name)


def near_matches(text: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return the known names that a misspelt one may have meant, best first."""
    by_key = {name.casefold(): name for name in known}
    return tuple(by_key[key] for key in get_close_matches(text.casefold(), by_key, n=3, cutoff=0.6))


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """Return a sentence with the near matches, or nothing."""
    near = near_matches(text, known)
    return f" Did you mean {' or '.join(near)}?" if near else ""


def brief(error: BaseException) -> str:
    """Return kind and first line of an error."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:SHOWN]}" if lines else type(error).__name__
