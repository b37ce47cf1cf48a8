"""Opening source and target of a command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from twinstore_backfill.cli.params import CommonOptions, side_settings
from twinstore_backfill.stores import Store, chosen_module, module_argument, open_store, preflight

__all__ = ["both_sides", "side_module"]


def side_module(options: CommonOptions, module: str | None, *files: Path | None) -> str:
    """Return the module of a command: the given one, or the only one that the settings of its sides name."""
    if module is not None:
        return module_argument(module)
    return chosen_module(None, *(side_settings(options, file) for file in files))


@contextmanager
def both_sides(
    options: CommonOptions,
    module: str,
    source: tuple[str, Path | None],
    target: tuple[str, Path | None],
) -> Iterator[tuple[Store, Store]]:
    """Open both sides, each given by its driver and its own settings file, if it has one.

    The source is only read, so a user with no other right is enough.
    """
    left = side_settings(options, source[1])
    right = side_settings(options, target[1])
    with (
        open_store(module, source[0], left, read_only=True) as first,
        open_store(module, target[0], right) as second,
    ):
        # Before anything is read: a copy of hours must not end in a store that takes none.
        preflight(lambda: second.storage.capabilities.require("bulk_target"))
        yield first, second
