"""Reads settings files, environment files and secret files.

No message repeats the text of a file, because it may hold a password.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from twinstore.config.entries import ConfigPath, SettingsEntry
from twinstore.errors import ConfigurationError
from twinstore.runtime.secrets import mask_secret_url

if TYPE_CHECKING:
    import yaml

# Windows editors put a byte order mark in front of appsettings.json.
ENCODING: Final = "utf-8-sig"
# A file of another kind that is named by mistake may not fit into the memory.
MAX_BYTES: Final = 16_777_216
# Of a YAML file, whose aliases are written out for this.
MAX_NODES: Final = 100_000
# As Compose and python-dotenv write the value of another variable: ${NAME} or ${NAME:-default}.
REFERENCE: Final = re.compile(r"\$\{([^}:]*)(?::-([^}]*))?\}")
# The name, and the sign behind it.
LINE: Final = re.compile(r"\s*(?:export\s+)?['\"]?([^\s='\"#]+)['\"]?\s*(=?)")


class RefusedFileError(ValueError):
    """A file that is well-formed is refused; the message names a key, never a value."""


def unique(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
    """Return an object of a file, in which no key may be twice; parsers would keep the last one.

    Spellings that differ in case are found when entries are collected.
    """
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise RefusedFileError(mask_secret_url(f"key {key!r} occurs twice in one object; keep one"))
        found[key] = value
    return found


def _yaml(text: str) -> object:
    import yaml  # noqa: PLC0415  # few applications have such a file

    try:
        # Inspected before it is built: a few lines of aliases can expand to gigabytes.
        if (root := yaml.compose(text, yaml.SafeLoader)) is not None:
            _expanded_size(root, {})
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    raise ValueError(f"line {mark.line + 1} column {mark.column + 1}" if mark else "not YAML")


def _expanded_size(node: yaml.Node, known: dict[int, int]) -> int:
    """Return the number of nodes of one with its aliases expanded.

    Args:
        node: where to begin.
        known: sizes by identity; a node is inspected once, however often aliases name it.

    Raises:
        RefusedFileError: there are too many, a node contains itself, or a mapping repeats a key.
    """
    import yaml  # noqa: PLC0415  # see above

    if id(node) not in known:
        # A node inside itself has no end.
        known[id(node)] = MAX_NODES + 1
        below: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            unique((str(key.value), None) for key, _ in node.value)
            below = [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            below = node.value
        known[id(node)] = 1 + sum(_expanded_size(part, known) for part in below)
    if known[id(node)] > MAX_NODES:
        raise RefusedFileError(
            f"it has more than {MAX_NODES:,} keys and values, YAML aliases written out; keep settings only"
        )
    return known[id(node)]


PARSERS: Final[Mapping[str, Callable[[str], object]]] = {
    ".json": partial(json.loads, object_pairs_hook=unique),
    ".yaml": _yaml,
    ".yml": _yaml,
    # TOML itself forbids to repeat a key.
    ".toml": tomllib.loads,
}


def read_file(path: Path, origin: str) -> Mapping[str, object]:
    """Return the content of a settings file.

    Args:
        path: where it is; the suffix decides the format.
        origin: who named it, for messages.

    Raises:
        ConfigurationError: the file is missing, unreadable, of an unknown format or malformed.
    """
    name = f"settings file {path}"
    parse = PARSERS.get(path.suffix.lower())
    if parse is None:
        raise _refused(f"{name} ({origin})", f"has an unknown format; use one of {', '.join(PARSERS)}")
    text = read_text(path, f"{name} ({origin})")
    try:
        data = parse(text)
    # Before ValueError, whose subclass it is.
    except RefusedFileError as error:
        problem = f"is refused: {error}"
    except (ValueError, RecursionError) as error:
        found = re.findall(r"line (\d+),? column (\d+)", str(error))
        problem = "is malformed" + (f" at line {found[-1][0]}, column {found[-1][1]}" if found else "")
    else:
        if isinstance(data, dict | None):
            items = cast("dict[object, object]", data or {}).items()
            # YAML has keys of other types. None of ours is one, and all others belong to the application.
            return {key: value for key, value in items if isinstance(key, str)}
        problem = "is malformed: the top level must be an object"
    # Outside the handlers: the error of a parser quotes the file.
    raise _refused(name, problem)


def read_text(path: Path, name: str) -> str:
    """Return the text of a file, which messages call by the given name."""
    try:
        if not path.is_file():
            absent = not path.exists()
            problem = "does not exist; correct the path or create it" if absent else "is not a file; name one"
        elif path.stat().st_size > MAX_BYTES:
            problem = f"is larger than {MAX_BYTES:,} bytes"
        else:
            return path.read_text(ENCODING)
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    except UnicodeDecodeError as error:
        problem = f"is malformed: byte {error.start} is not UTF-8"
    # Outside the handlers: what could not be decoded is part of the error.
    raise _refused(name, problem)


# How a connection string begins that is elsewhere, so that no file and no command line holds its password.
ELSEWHERE: Final = ("env:", "file:")


def read_elsewhere(text: str, variables: Mapping[str, str], owner: str) -> str:
    """Return a text, or what the variable or the file holds that it names with ``env:`` or ``file:``.

    Args:
        text: the text.
        variables: where variables are looked up.
        owner: what has the text, for messages.

    Raises:
        ConfigurationError: the variable is not set, or the file cannot be read.
    """
    if not text.startswith(ELSEWHERE):
        return text
    kind, _, name = text.partition(":")
    if kind == "file":
        return read_text(Path(name), f"file {mask_secret_url(name)} (named by {owner})").strip()
    value = variables.get(name) if name.isprintable() else None
    if not value:
        raise ConfigurationError(
            f"{owner[0].upper()}{owner[1:]} names the variable {mask_secret_url(name)!r}, which is not set; "
            "set it, or give the URL itself."
        )
    return value.strip()


def _refused(name: str, problem: str) -> ConfigurationError:
    return ConfigurationError(f"{name[0].upper()}{name[1:]} {problem}.")


def _key(name: str) -> ConfigPath:
    """Return the key of a variable: ``A__B``, or ``A:B`` where a name may be so."""
    return tuple(name.replace(":", "__").split("__"))


def _is_ours(name: str, top_sections: frozenset[str]) -> bool:
    """Return whether a name is a key below a known section; ``WORKER`` alone is another program's."""
    top, *below = _key(name)
    return bool(below) and top.casefold() in top_sections


def environment(environ: Mapping[str, str], top_sections: frozenset[str]) -> Iterator[SettingsEntry]:
    """Yield the variables of the environment below known sections."""
    for name, value in environ.items():
        if _is_ours(name, top_sections):
            yield SettingsEntry(_key(name), value, f"environment variable {mask_secret_url(name)}")


def read_env_file(
    path: Path, origin: str, environ: Mapping[str, str], top_sections: frozenset[str]
) -> tuple[dict[str, str], list[SettingsEntry]]:
    """Return the variables of an environment file, and those that are settings.

    ``${NAME}`` is the value of another variable: of the environment, or else of the file.

    Args:
        path: where it is.
        origin: who named it, for messages.
        environ: the environment.
        top_sections: the known sections.

    Raises:
        ConfigurationError: it cannot be read, a setting is malformed, or another variable has no value.
    """
    from dotenv import dotenv_values  # noqa: PLC0415  # few applications have such a file

    name = f"environment file {path}"
    text = read_text(path, f"{name} ({origin})")
    lines = [(n, found) for n, line in enumerate(text.split("\n"), 1) if (found := LINE.match(line))]
    values: dict[str, str] = {}
    # The environment first. With its own interpolation, python-dotenv would prefer the lines, and read an
    # unknown name as an empty text.
    known = ChainMap(dict(environ), values)
    for variable, value in dotenv_values(stream=StringIO(text), interpolate=False).items():
        references = REFERENCE.finditer(value or "")
        if any(found[1] not in known and found[2] is None for found in references):
            # Unnamed: where a password holds this text, the name is a part of it.
            problem = (
                "has a ${NAME} that is not set above it; set it, or put a value with this text into a secret "
                "file or into the environment"
            )
            place = next((f", line {number}" for number, found in lines if found[1] == variable), "")
            raise _refused(f"{name}{place}", problem)
        values[variable] = REFERENCE.sub(lambda found: known.get(found[1], found[2]), value or "")
    entries: list[SettingsEntry] = []
    for number, found in lines:
        is_setting = _is_ours(found[1], top_sections)
        # python-dotenv skips a malformed line with a warning in the log; a setting must not get lost.
        if (is_setting or found[1].startswith("TWINSTORE_")) and (found[1] not in values or not found[2]):
            raise _refused(f"{name}, line {number}", "is malformed; write NAME=value")
        if is_setting:
            entries.append(SettingsEntry(_key(found[1]), values[found[1]], f"{name}, line {number}"))
    return values, entries


def read_secrets(directory: Path, origin: str, top_sections: frozenset[str]) -> Iterator[SettingsEntry]:
    """Yield the secret files of a directory: each has the name of a variable and holds its value.

    Raises:
        ConfigurationError: the directory or one of our files in it cannot be read, or is something else.
    """
    try:
        names = sorted(entry.name for entry in directory.iterdir() if _is_ours(entry.name, top_sections))
    except OSError as error:
        problem = f"cannot be read: {error.strerror}; name a directory with a file for each key"
        raise _refused(f"secrets directory {directory} ({origin})", problem) from error
    for name in names:
        path = directory / name
        source = f"secret file {mask_secret_url(str(path))}"
        # Kubernetes mounts links to files in the same directory.
        if directory.resolve() not in path.resolve().parents:
            raise _refused(source, "is a link that leads out of its directory; put the file itself there")
        yield SettingsEntry(_key(name), read_text(path, source).strip(), source)
