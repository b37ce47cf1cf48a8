"""``twinstore --version``: what is installed here, read from its metadata without importing any of it."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution, entry_points
from typing import TYPE_CHECKING, Final

import typer

import twinstore
from twinstore_backfill.cli.streams import emit_text

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

DRIVERS: Final = "twinstore.backends"
OURS: Final = "twinstore"
REQUIREMENT: Final = re.compile(r"(?P<name>[\w.-]+)(\[(?P<extras>[\w.,\s-]+)\])?[^;]*(;(?P<marker>.*))?")
EXTRA: Final = re.compile(r"extra\s*==\s*['\"](?P<name>[^'\"]+)['\"]")


def show_version(context: typer.Context, wanted: bool) -> None:  # noqa: FBT001  # Typer calls it so
    """Print the versions and end, where they are asked for."""
    if wanted and not context.resilient_parsing:
        emit_text("\n".join(version_lines()) + "\n")
        raise typer.Exit


VersionOption: Final = typer.Option(
    "--version",
    help="Show the versions of twinstore, of Python, of the drivers and of their client libraries.",
    callback=show_version,
    is_eager=True,
    expose_value=False,
)


def version_lines() -> Iterator[str]:
    """Yield the version of this package, of Python, and of each driver with its client libraries."""
    yield f"{OURS} {twinstore.__version__}"
    yield f"Python {platform.python_version()} ({platform.system()} {platform.machine()})"
    for driver in sorted(entry_points(group=DRIVERS), key=lambda found: found.name):
        clients = ", ".join(dict.fromkeys(_clients(driver))) or "needs no client library"
        yield f"driver {driver.name}{_origin(driver.dist)}: {clients}"


def _origin(found: Distribution | None) -> str:
    """Return which distribution brings a driver, where it is not ours."""
    return "" if found is None or found.name == OURS else f" of {found.name} {found.version}"


def _clients(driver: EntryPoint) -> Iterator[str]:
    """Yield the client libraries: an extra of ours named as the driver, or all that another one needs."""
    if driver.dist is None:
        return
    wanted = driver.name.casefold() if driver.dist.name == OURS else ""
    yield from _required(driver.dist, wanted)


def _required(found: Distribution, extra: str) -> Iterator[str]:
    for text in found.requires or ():
        match = REQUIREMENT.match(text)
        marker = EXTRA.search(match["marker"] or "") if match else None
        if match is None or (marker["name"] if marker else "") != extra or match["name"] == OURS:
            continue
        try:
            needed = distribution(match["name"])
        except PackageNotFoundError:
            yield f"{match['name']} is not installed"
            continue
        yield f"{needed.name} {needed.version}"
        for part in filter(None, re.split(r"[\s,]+", match["extras"] or "")):
            yield from _required(needed, part)
