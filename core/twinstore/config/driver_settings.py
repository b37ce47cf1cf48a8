"""Turns the section of a driver into its settings model, with errors that name keys and hide secrets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args

from pydantic import BaseModel, SecretBytes, SecretStr, ValidationError

from twinstore.backend import BackendSettings, BackendSpec
from twinstore.config.entries import (
    ConfigPath,
    Entries,
    SettingsEntry,
    collect,
    env_spelling,
    fold,
    nest,
    refuse_overlap,
)
from twinstore.config.keys import model_tree, spelled
from twinstore.errors import ConfigurationError, TwinstoreError
from twinstore.forgetting import without_locals
from twinstore.redaction import MASK, is_secret_key, mask_secret_url, mentions_secret, secrets_in

__all__ = ["build_settings", "driver_defaults"]

WITHHELD = "the driver refuses its value (its message is withheld because it repeats a secret)"


@without_locals
def build_settings(
    spec: BackendSpec, entries: Entries, section: ConfigPath, note: str = "", *, partly: bool = False
) -> BackendSettings:
    """Validate the entries below a driver's section through the driver's model.

    Args:
        spec: the driver.
        entries: by folded path relative to the section.
        section: the section of the module, for messages about absent keys.
        note: where absent keys might have stood, for the message.
        partly: whether absent keys are none of the caller's concern, who looks at the given ones.

    Raises:
        ConfigurationError: a key is unknown, a value is refused, or a required one is absent.
    """
    named = _named(spec.settings, entries)
    try:
        return spec.settings.model_validate(nest((entry.path, entry.value) for entry in named.values()))
    except ValidationError as error:
        # Without input and context, which hold the value that was refused.
        details = error.errors(include_url=False, include_context=False, include_input=False)
        absent = [detail for detail in details if detail["type"] == "missing" or not detail["loc"]]
        if partly and len(absent) == len(details):
            return spec.settings.model_construct()
        problems = [
            _problem(spec, named, section, tuple(map(str, detail["loc"])), detail["type"], detail["msg"])
            for detail in details
            if not partly or detail not in absent
        ]
        problems += [note] if absent else []
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
    raise ConfigurationError(" ".join(filter(None, problems)), driver=spec.name)


def _named(model: type[BaseModel], entries: Entries) -> Entries:
    """Return the entries by the names of the model, of which two spellings are a key given twice."""
    tree = model_tree(model)
    named: list[SettingsEntry] = []
    for path, entry in entries.items():
        start = len(entry.path) - len(path)
        proper = spelled(entry, tree, start)[start:]
        named.append(replace(entry, path=proper, given=entry.given or entry.path))
    found = collect(named)
    refuse_overlap(found)
    return found


def driver_defaults(model: type[BaseModel]) -> Iterator[tuple[str, object]]:
    """Yield name and default of each setting of a driver that a file can hold."""
    for name, field in model.model_fields.items():
        # What is excluded from dumps is an object of the host.
        if not field.exclude:
            default: object = None if field.is_required() else field.get_default(call_default_factory=True)
            if default is not None and (_holds_secret(field.annotation) or is_secret_key(name)):
                default = MASK
            yield field.alias or name, str(default) if isinstance(default, Path) else default


def _problem(  # noqa: PLR0917  # the parts of one pydantic error, passed on once
    spec: BackendSpec, named: Entries, section: ConfigPath, location: ConfigPath, kind: str, message: str
) -> str:
    """Say one refusal of the model without repeating a secret."""
    if kind == "missing":
        shared = ("Persistence", spec.name, location[0])
        return (
            f"{':'.join((*section, location[0]))} is not set; set it or {':'.join(shared)} "
            f"(environment: {env_spelling(shared)})."
        )
    concerned = [entry for path, entry in named.items() if path[:1] == fold(location[:1])]
    text = message.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if mentions_secret(text, _secrets(spec, named)):
        text = WITHHELD
    # The key as the user wrote it, with its source; the model knows neither.
    where = ", ".join(f"{entry.key} ({entry.source})" for entry in concerned) or ":".join(section)
    return f"{where} is not valid: {mask_secret_url(text).rstrip('.')}."


def _secrets(spec: BackendSpec, named: Entries) -> Iterator[str]:
    fields = spec.settings.model_fields.items()
    secret = {(field.alias or name).casefold() for name, field in fields if _holds_secret(field.annotation)}
    for path, entry in named.items():
        yield from secrets_in(entry.text)
        if is_secret_key(path[-1]) or path[0] in secret:
            yield entry.text


def _holds_secret(annotation: object) -> bool:
    return (
        annotation is SecretStr or annotation is SecretBytes or any(map(_holds_secret, get_args(annotation)))
    )
