"""Settings: the switches, the sections of the drivers and the options of the modules."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Final, cast, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import SecretStr

from docs.parts.tables import NONE, attributes, code, codes, table
from twinstore.config.keys import modules
from twinstore.plugins.drivers import load_backend

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from twinstore.plugins.settings import BackendSettings

__all__ = ["DRIVERS", "driver_keys", "driver_table", "option_keys", "option_table", "switch_table"]

DRIVERS: Final = ("Mongo", "Postgres", "Memory", "Filesystem")
KINDS: Final[dict[object, str]] = {
    bool: "true or false",
    float: "number",
    int: "whole number",
    object: "object, from Python only",
    Path: "path",
    str: "text",
}


def switch_table() -> str:
    """Return the keys that name a driver."""
    rows = ((code(":".join(keys.switch)), codes(keys.drivers)) for keys in modules().values())
    return table(("Key", "Values"), rows)


def driver_keys(driver: str) -> dict[str, FieldInfo]:
    """Return the fields of a driver's settings by key."""
    model = load_backend(driver).settings
    return {f"Persistence:{driver}:{field.alias}": field for field in model.model_fields.values()}


def driver_table(driver: str) -> str:
    """Return the settings of a driver."""
    model: type[BackendSettings] = load_backend(driver).settings
    meanings = attributes(model)
    rows = (
        (
            code(f"Persistence:{driver}:{field.alias}"),
            _kind(field),
            _default(field),
            meanings[name],
        )
        for name, field in model.model_fields.items()
    )
    return table(("Key", "Value", "Default", "Means"), rows)


def option_keys() -> tuple[str, ...]:
    """Return the keys of the options of all modules."""
    return tuple(":".join(path) for keys in modules().values() for path in keys.option_paths.values())


def option_table() -> str:
    """Return the options of all modules."""
    rows: list[tuple[str, str, str, str]] = []
    for keys in modules().values():
        meanings = attributes(keys.options)
        for name, path in keys.option_paths.items():
            field = keys.options.model_fields[name]
            rows.append((code(":".join(path)), _kind(field), _default(field), meanings[name]))
    return table(("Key", "Value", "Default", "Means"), rows)


def _kind(field: FieldInfo) -> str:
    """Return what a field takes, with its bounds."""
    if get_origin(field.annotation) in {dict, Mapping}:
        return "an object of texts"
    inner = [part for part in get_args(field.annotation) if part is not NoneType]
    if SecretStr in {field.annotation, *inner}:
        return "text, secret"
    kind = KINDS[inner[0] if inner else field.annotation]
    low, high = (_bound(field, kind_of) for kind_of in (Ge, Le))
    if low is None:
        return kind
    return f"{kind}, {low:,} to {high:,}" if high is not None else f"{kind}, at least {low:,}"


def _bound(field: FieldInfo, kind: type[Ge | Le]) -> int | None:
    for item in field.metadata:
        if isinstance(item, kind):
            return cast("int", getattr(item, kind.__name__.lower()))
    return None


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default: object = field.get_default(call_default_factory=True)
    if default is None or default == {}:
        return NONE
    return code(str(default).lower() if isinstance(default, bool) else default)
