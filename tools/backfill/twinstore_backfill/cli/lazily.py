"""Groups whose commands are imported when they are asked for: each process runs one of them."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["group_of"]


class Commands(MutableMapping[str, Any]):
    """Commands by name, in the order of the help.

    Values have no type, because versions of Typer bring a click of their own or use the installed one.
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        """Take where each command is: ``module:attribute``, a function or an application of Typer."""
        self._places = dict(places)
        self._loaded: dict[str, Any] = {}

    @override
    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = _command_at(self._places[name], name)
        return self._loaded[name]

    @override
    def __setitem__(self, name: str, command: Any) -> None:
        self._places.setdefault(name, "")
        self._loaded[name] = command

    @override
    def __delitem__(self, name: str) -> None:
        del self._places[name]
        self._loaded.pop(name, None)

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    @override
    def __len__(self) -> int:
        return len(self._places)


def group_of(places: Mapping[str, str]) -> type[TyperGroup]:
    """Return the class of a group of commands, for ``typer.Typer(cls=...)``."""

    class LazyGroup(TyperGroup):
        """A group that knows the names of its commands and imports the one that is asked for."""

        def __init__(self, **given: Any) -> None:  # noqa: ANN401  # whatever this version of Typer gives
            super().__init__(**given)
            self.commands = Commands(places)

        @override
        def list_commands(self, ctx: Any) -> list[str]:
            return list(self.commands)

    return LazyGroup


def _command_at(place: str, name: str) -> object:
    """Import a command and return what Typer makes of it."""
    module, _, attribute = place.partition(":")
    found: typer.Typer | Callable[..., object] = getattr(import_module(module), attribute)
    if isinstance(found, typer.Typer):
        command = typer.main.get_group(found)
        command.name = name
        return command
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    single.command(name)(found)
    return typer.main.get_command(single)
