"""Plug-ins by entry point: who registers a name, and the sentences that all kinds of plug-ins share.

Drivers and modules come through the same door. A name belongs to one distribution, it is compared without
case, and a plug-in that cannot be loaded is a separate error that does not affect the others.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from importlib.metadata import Distribution, EntryPoint, EntryPoints, entry_points
from traceback import extract_tb
from typing import Final

from typing_extensions import override

from twinstore.errors import ConfigurationError
from twinstore.runtime.secrets import mask_secret_url

MAX_MESSAGE_TEXT: Final = 200


@dataclass(frozen=True, slots=True)
class Registration:
    """One entry point: a distribution registers the plug-in of this name.

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
        return _name_of(self.point.dist) if self.point.dist else ""

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
        for point in _entry_points(group, _places())
    ]


def _places() -> tuple[tuple[str, int], ...]:
    """Return where distributions are found, each with the instant at which one was last added or removed."""
    found: list[tuple[str, int]] = []
    for place in sys.path:
        try:
            # Opening a storage checks a dozen times, and making a path takes longer than the check.
            found.append((place, os.stat(place or ".").st_mtime_ns))  # noqa: PTH116
        except OSError:  # no such folder yet; it counts once it is there
            found.append((place, 0))
    return tuple(found)


@lru_cache(maxsize=8)
def _entry_points(group: str, places: tuple[tuple[str, int], ...]) -> EntryPoints:
    """Return the entry points of a group; each look-up would read many files."""
    del places
    return entry_points(group=group)


@lru_cache(maxsize=64)
def _name_of(distribution: Distribution) -> str:
    """Return the name of a distribution; each question would parse all that it says of itself."""
    return distribution.name


def single_registration(
    matching: Sequence[Registration], name: str, known: Sequence[Registration], kind: str
) -> Registration:
    """Return the one registration of a name.

    Raises:
        ConfigurationError: no distribution registers it, or more than one does.
    """
    if not matching:
        names = sorted({registration.name for registration in known}, key=str.casefold)
        raise failure(
            # A connection string in place of a name must not be repeated.
            f"Unknown {kind} {mask_secret_url(name)!r}.{did_you_mean(name, names)} "
            f"Installed: {', '.join(names) or 'none'}. "
            "Correct the name or install the distribution that provides it.",
            kind,
            mask_secret_url(name),
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
    # Compared by its beginning, because the price grows with the square of the length.
    return tuple(
        by_key[key] for key in get_close_matches(text[:MAX_MESSAGE_TEXT].casefold(), by_key, n=3, cutoff=0.6)
    )


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """Return a sentence with the near matches, or nothing."""
    near = near_matches(text, known)
    return f" Did you mean {' or '.join(near)}?" if near else ""


def brief_error(error: BaseException) -> str:
    """Return kind and first line of an error."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:MAX_MESSAGE_TEXT]}" if lines else type(error).__name__


def place_of(error: BaseException) -> str:
    """Return the line of a plug-in at which its import failed, to follow a message; empty if unknown."""
    frames = [frame for frame in extract_tb(error.__traceback__) if frame.name == "<module>"]
    return f"; line {frames[-1].lineno} of {frames[-1].filename}" if frames else ""
