"""Turns the section of a driver into its settings model, with errors that name keys and hide secrets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import get_args

from pydantic import BaseModel, SecretBytes, SecretStr, ValidationError
from pydantic.fields import FieldInfo

from twinstore.backend import BackendSettings, BackendSpec
from twinstore.config.entries import ConfigPath, Entries, SettingsEntry, env_spelling, fold, nest
from twinstore.entrypoints import did_you_mean
from twinstore.errors import ConfigurationError, TwinstoreError
from twinstore.forgetting import without_locals
from twinstore.redaction import is_secret_key, mask_secret_url, mentions_secret, secrets_in

__all__ = ["build_settings"]

WITHHELD = "the driver refuses its value (its message is withheld because it repeats a secret)"


@without_locals
def build_settings(spec: BackendSpec, entries: Entries, section: ConfigPath) -> BackendSettings:
    """Validate the entries below a driver's section through the driver's model.

    Args:
        spec: the driver.
        entries: by folded path relative to the section.
        section: the section of the module, for messages about absent keys.

    Raises:
        ConfigurationError: a key is unknown, a value is refused, or a required one is absent.
    """
    spelled = {proper_path(spec.settings, path, entry): entry for path, entry in entries.items()}
    try:
        return spec.settings.model_validate(nest((path, entry.value) for path, entry in spelled.items()))
    except ValidationError as error:
        problems = [
            _problem(spec, spelled, section, fold(map(str, detail["loc"])), detail["type"], detail["msg"])
            # Without input and context, which hold the value that was refused.
            for detail in error.errors(include_url=False, include_context=False, include_input=False)
        ]
    except TwinstoreError:
        raise
    # A validator of somebody else may raise anything, and what it says may repeat what it was given.
    except (Exception, SystemExit) as error:  # noqa: BLE001  # told in the message
        problem = (
            f"The settings of the driver {spec.name} ({':'.join(section)}) were refused with "
            f"{type(error).__name__}, whose text is withheld because it may repeat a secret; correct them, "
            "or ask the author of the driver, whose validators must raise ValueError."
        )
        problems = [problem]
    # Outside the handler: pydantic's error holds the input, and a context would show it in a traceback.
    raise ConfigurationError(" ".join(problems), driver=spec.name)


def proper_path(model: type[BaseModel], path: ConfigPath, entry: SettingsEntry) -> ConfigPath:
    """Spell a path as the model does; below a field that is not a model, keep it as given.

    Raises:
        ConfigurationError: the model has no such field.
    """
    given = entry.path[len(entry.path) - len(path) :]
    names = field_names(model)
    name = names.get(path[0])
    if name is None:
        allowed = sorted({alias for alias, _ in names.values()})
        parent = mask_secret_url(":".join(entry.path[: len(entry.path) - len(path)]))
        raise ConfigurationError(
            f"Unknown setting {entry.key} in {entry.source}.{did_you_mean(given[0], allowed)} "
            f"Allowed below {parent}: {', '.join(allowed) or 'nothing'}."
        )
    alias, field = name
    inner = field.annotation
    if len(path) > 1 and isinstance(inner, type) and issubclass(inner, BaseModel):
        return (alias, *proper_path(inner, path[1:], entry))
    return (alias, *given[1:])


def field_names(model: type[BaseModel]) -> Mapping[str, tuple[str, FieldInfo]]:
    """Return alias and field by every folded name that the model accepts."""
    found: dict[str, tuple[str, FieldInfo]] = {}
    for name, field in model.model_fields.items():
        alias = field.alias or name
        found[name.casefold()] = found[alias.casefold()] = (alias, field)
    return found


def _problem(  # noqa: PLR0917  # the parts of one pydantic error, passed on once
    spec: BackendSpec, spelled: Entries, section: ConfigPath, location: ConfigPath, kind: str, message: str
) -> str:
    """Say one refusal of the model without repeating a secret."""
    absent = kind == "missing"
    if absent:
        alias = field_names(spec.settings).get(location[0], (location[0], None))[0]
        shared = ("Persistence", spec.name, alias)
        return (
            f"{':'.join((*section, alias))} is not set; set it or {':'.join(shared)} "
            f"(environment: {env_spelling(shared)})."
        )
    concerned = [entry for path, entry in spelled.items() if location and fold(path)[0] == location[0]]
    text = message.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if mentions_secret(text, _secrets(spec, spelled)):
        text = WITHHELD
    # The key as the user wrote it, with its source; the model knows neither.
    where = ", ".join(f"{entry.key} ({entry.source})" for entry in concerned) or ":".join(section)
    return f"{where} is not valid: {mask_secret_url(text).rstrip('.')}."


def _secrets(spec: BackendSpec, spelled: Entries) -> Iterable[str]:
    names = field_names(spec.settings)
    for path, entry in spelled.items():
        yield from secrets_in(entry.text)
        if is_secret_key(path[-1]) or _holds_secret(names[path[0].casefold()][1].annotation):
            yield entry.text


def _holds_secret(annotation: object) -> bool:
    return (
        annotation is SecretStr or annotation is SecretBytes or any(map(_holds_secret, get_args(annotation)))
    )
