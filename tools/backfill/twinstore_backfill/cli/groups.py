"""Groups of options that several commands share: a command takes each as one parameter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from twinstore_backfill.cli.params import (
    Backend,
    CommonOptions,
    FromBackend,
    ModuleName,
    OnlyEntities,
    OnlyTenants,
    SourceConfig,
    TargetConfig,
    ToBackend,
    common,
    instant_option,
    side_settings,
)
from twinstore_backfill.stores import Store, chosen_module, module_argument, open_store, preflight

if TYPE_CHECKING:
    from pathlib import Path

    from twinstore_backfill.subset import Subset

__all__ = ["OneStore", "RowOptions", "Sides", "TargetSide", "spread"]

KeyFrom = Annotated[
    list[str] | None,
    typer.Option(
        "--key-from",
        metavar="KEY",
        help="Only rows from this key on, of one --entity; for a key of several parts once for each, or for "
        "the first ones.",
    ),
]
KeyTo = Annotated[
    list[str] | None,
    typer.Option("--key-to", metavar="KEY", help="Only rows before this key; given as --key-from."),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="INSTANT",
        help="Only rows last changed (or made, where no change is noted) at this instant or later.",
    ),
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="INSTANT", help="Only rows dated before this instant.")
]


@dataclass(frozen=True)
class OneStore:
    """The store of a command that works on one."""

    context: typer.Context
    module: ModuleName = None
    backend: Backend = None

    @contextmanager
    def opened(self) -> Iterator[Store]:
        """Open the module on the named driver, or on the one of the settings."""
        settings = common(self.context).settings()
        name = chosen_module(self.module, settings)
        with open_store(name, self.backend or settings.backend_name(name), settings) as store:
            yield store


@dataclass(frozen=True)
class TargetSide:
    """The target of copies, for what their ledger tells."""

    context: typer.Context
    target: ToBackend
    module: ModuleName = None
    target_config: TargetConfig = None

    @contextmanager
    def opened(self) -> Iterator[Store]:
        """Open it."""
        settings = side_settings(common(self.context), self.target_config)
        with open_store(chosen_module(self.module, settings), self.target, settings) as store:
            yield store


@dataclass(frozen=True)
class Sides:
    """Source and target of a command."""

    context: typer.Context
    source: FromBackend
    target: ToBackend
    module: ModuleName = None
    source_config: SourceConfig = None
    target_config: TargetConfig = None

    @property
    def common(self) -> CommonOptions:
        """The options that every command takes."""
        return common(self.context)

    @property
    def name(self) -> str:
        """The module: the given one, or the only one that the settings of both sides name."""
        return self.module_of(self.source_config, self.target_config)

    def module_of(self, *files: Path | None) -> str:
        """Return the module: the given one, or the only one that some settings files name."""
        if self.module is not None:
            return module_argument(self.module)
        return chosen_module(None, *(side_settings(self.common, file) for file in files))

    @contextmanager
    def opened(self, module: str) -> Iterator[tuple[Store, Store]]:
        """Open both sides. The source is only read, so a user with no other right is enough."""
        left = side_settings(self.common, self.source_config)
        right = side_settings(self.common, self.target_config)
        with (
            open_store(module, self.source, left, read_only=True) as first,
            open_store(module, self.target, right) as second,
        ):
            # Before anything is read: a copy of hours must not end in a store that takes none.
            preflight(lambda: second.storage.capabilities.require("bulk_target"))
            yield first, second


@dataclass(frozen=True)
class RowOptions:
    """Which rows a command means."""

    entity: OnlyEntities = None
    tenant: OnlyTenants = None
    key_from: KeyFrom = None
    key_to: KeyTo = None
    since: Since = None
    until: Until = None

    @property
    def subset(self) -> Subset:
        """The part of the rows that the options mean.

        Raises:
            ValidationError: an instant is none, or they leave none between them.
        """
        from twinstore_backfill.subset import Subset  # noqa: PLC0415  # help needs no models

        return Subset(
            key_from=tuple(self.key_from or ()),
            key_to=tuple(self.key_to or ()),
            since=instant_option(self.since, "--since"),
            until=instant_option(self.until, "--until"),
        )


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that takes the options of its groups one by one, those without a default first."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}

    @wraps(command)
    def called(**given: object) -> None:
        made = {
            name: kind(**{item.name: given.pop(item.name) for item in fields(kind)})
            for name, kind in groups.items()
        }
        command(**made, **given)

    parameters = [
        option
        for name in signature(command).parameters
        for option in (_options(groups[name]) if name in groups else _options(command, name))
    ]
    parameters.sort(key=lambda item: item.default is not Parameter.empty)
    called.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # pyright: ignore[reportFunctionMemberAccess]  # as inspect documents it
    called.__annotations__ = {item.name: item.annotation for item in parameters}
    return called


def _options(owner: Callable[..., object], *names: str) -> Iterator[Parameter]:
    """Yield some parameters of a command, or all of a group, with types in place of their names."""
    hints = get_type_hints(owner, include_extras=True)
    for name, item in signature(owner).parameters.items():
        if name in names or not names:
            yield item.replace(annotation=hints[name], kind=Parameter.KEYWORD_ONLY)
