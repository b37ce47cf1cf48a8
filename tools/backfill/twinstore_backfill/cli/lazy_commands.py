"""Groups whose commands are imported on demand: each process runs one of them."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typing_extensions import override

from twinstore_backfill.cli.invocation import (
    CommandGroup,
    LeafCommand,
    common_parameters,
    is_narrow_terminal,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Where a command is, ``module:attribute``, a function or an application of Typer, in this package if nothing
# else is said; and its line in the help, so that a list of commands imports none. A test compares both.
CommandEntry = tuple[str, str]


class Commands(MutableMapping[str, Any]):
    """Commands by name, in the order of the help.

    Values have no type, because Typer's copy of click is private.
    """

    def __init__(self, entries: Mapping[str, CommandEntry]) -> None:
        self._entries = dict(entries)
        self._loaded: dict[str, Any] = {}

    def list_entry(self, name: str) -> TyperCommand | None:
        """Return what a list of commands shows of one."""
        return TyperCommand(name, help=self._entries[name][1]) if name in self._entries else None

    @override
    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = _import_command(self._entries[name][0], name)
        return self._loaded[name]

    @override
    def __setitem__(self, name: str, command: Any) -> None:
        self._entries.setdefault(name, ("", ""))
        self._loaded[name] = command

    @override
    def __delitem__(self, name: str) -> None:
        del self._entries[name]
        self._loaded.pop(name, None)

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    @override
    def __len__(self) -> int:
        return len(self._entries)


def lazy_group(entries: Mapping[str, CommandEntry], *, root: bool = False) -> type[TyperGroup]:
    """Return the class of a group of commands, for ``typer.Typer(cls=...)``.

    Args:
        entries: its commands.
        root: whether its help shows the options that every command takes.
    """

    class LazyGroup(CommandGroup):
        """A group that knows the names of its commands and imports the one that is requested."""

        def __init__(self, **given: Any) -> None:  # noqa: ANN401  # whatever this version of Typer gives
            super().__init__(**given)
            self._known = Commands(entries)
            self._listing = False
            self.commands = self._known
            self.params[:0] = common_parameters(shown=root)

        @override
        def list_commands(self, ctx: Any) -> list[str]:
            return list(self.commands)

        @override
        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            return self._known.list_entry(cmd_name) if self._listing else super().get_command(ctx, cmd_name)

        @override
        def format_help(self, ctx: Any, formatter: Any) -> None:
            self._listing = True
            if is_narrow_terminal():
                self.rich_markup_mode = None
            try:
                super().format_help(ctx, formatter)
            finally:
                self._listing = False

        @override
        def shell_complete(self, ctx: Any, incomplete: str) -> Any:
            self._listing = True
            try:
                return super().shell_complete(ctx, incomplete)
            finally:
                self._listing = False

    return LazyGroup


def full_name(module: str) -> str:
    """Return the full name of the module of a command."""
    return module if "." in module else f"twinstore_backfill.cli.{module}"


def _import_command(target: str, name: str) -> object:
    """Import a command and return what Typer makes of it."""
    from twinstore_backfill.cli.options import expand_option_groups

    module, _, attribute = target.partition(":")
    found: typer.Typer | Callable[..., object] = getattr(import_module(full_name(module)), attribute)
    if not isinstance(found, typer.Typer):
        single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        single.command(name, cls=LeafCommand)(expand_option_groups(found))
        return typer.main.get_command(single)
    for registered in found.registered_commands:
        registered.cls = LeafCommand
        if registered.callback is not None:
            registered.callback = expand_option_groups(registered.callback)
    command = typer.main.get_group(found)
    command.name = name
    if not isinstance(command.commands, Commands):
        command.params.extend(common_parameters())
    return command
