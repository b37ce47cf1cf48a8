"""The command line, read from the application itself."""

from __future__ import annotations

import inspect
from enum import EnumType
from itertools import groupby
from typing import TYPE_CHECKING, Final, Literal, Protocol, cast, get_args, get_origin, get_type_hints

import typer

from docs.parts.tables import NONE, code, codes, plain, table
from twinstore_backfill.cli.invocation import ADVANCED, examples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from enum import Enum

__all__ = ["Command", "Parameter", "choices", "command_pages", "commands", "root_command", "subcommands"]

PROGRAM: Final = "twinstore"


class Parameter(Protocol):
    """What Typer says about an option or an argument, in every version that we allow."""

    name: str
    opts: Sequence[str]
    secondary_opts: Sequence[str]
    default: object
    required: bool
    param_type_name: str
    metavar: str | None


class Command(Protocol):
    """What Typer says about a command."""

    help: str | None
    params: Sequence[Parameter]
    callback: Callable[..., object]


def root_command() -> Command:
    """Return the whole command line."""
    from twinstore_backfill.cli.app import app  # noqa: PLC0415  # other parts work without the command line

    return cast("Command", typer.main.get_command(app))


def subcommands(command: Command) -> Mapping[str, Command]:
    """Return the commands of a group, nothing for a plain command."""
    return cast("Mapping[str, Command]", getattr(command, "commands", {}))


def commands(command: Command | None = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Command]]:
    """Yield the program, its groups and its commands with their full names, in the order of the help."""
    command = command or root_command()
    yield " ".join((PROGRAM, *path)), command
    for name, inner in subcommands(command).items():
        yield from commands(inner, (*path, name))


def command_pages() -> str:
    """Return a section for each command."""
    return "\n\n".join(_section(name, command) for name, command in commands())


def _section(name: str, command: Command) -> str:
    level = "##" if name.count(" ") < 2 else "###"
    parts = [f"{level} `{name}`", plain(inspect.cleandoc(command.help or ""))]
    if inner := subcommands(command):
        parts.append(f"Commands: {codes(inner)}.")
    # The options that every command has are listed with the program, which defines them.
    listed = [item for item in command.params if item.name != "help" and not getattr(item, "hidden", False)]
    listed.sort(key=_is_advanced)
    for advanced, items in groupby(listed, key=_is_advanced):
        name_column = "Advanced option" if advanced else "Option"
        parts.append(table((name_column, "Default", "Means"), [_row(command, item) for item in items]))
    if not inner:
        shown = examples(name.partition(" ")[2])
        parts.append("\n".join(("```console", *(f"$ {line}" for line in shown), "```")))
    return "\n\n".join(parts)


def _is_advanced(parameter: Parameter) -> bool:
    return getattr(parameter, "rich_help_panel", None) == ADVANCED


def choices(command: Command, parameter: Parameter) -> tuple[str, ...]:
    """Return the values that an option is limited to, none where it is not.

    The signature says it in every version of Typer; where its own objects keep it differs.
    """
    annotation: object = get_type_hints(inspect.unwrap(command.callback)).get(parameter.name)
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    kinds = [
        cast("type[Enum]", kind) for kind in (annotation, *get_args(annotation)) if isinstance(kind, EnumType)
    ]
    return tuple(str(item.value) for kind in kinds for item in kind)


def _row(command: Command, parameter: Parameter) -> tuple[str, str, str]:
    names = " / ".join(code(f"{name}{_value(command, parameter)}") for name in _names(parameter))
    text = cast("str", getattr(parameter, "help", None) or "")
    return (names, _default(parameter), plain(text))


def _names(parameter: Parameter) -> tuple[str, ...]:
    if parameter.param_type_name == "argument":
        return ("",)
    return (*parameter.opts, *parameter.secondary_opts)


def _value(command: Command, parameter: Parameter) -> str:
    """Return what must follow an option."""
    if getattr(parameter, "is_flag", False):
        return ""
    shown = "|".join(choices(command, parameter)) or parameter.metavar or parameter.name.upper()
    return f" {shown}" if parameter.opts[0].startswith("-") else shown


def _default(parameter: Parameter) -> str:
    if parameter.required:
        return "required"
    value = getattr(parameter.default, "value", parameter.default)
    if value is None or value is False or value in ([], ()) or callable(value):
        return NONE
    return code("yes" if value is True else value)
