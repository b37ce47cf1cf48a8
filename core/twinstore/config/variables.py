"""Settings by the names of environment variables: the environment, an environment file, secret files."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import Final, NamedTuple, cast

from twinstore.config.entries import ConfigPath, SettingsEntry
from twinstore.config.files import read_text
from twinstore.errors import ConfigurationError
from twinstore.redaction import mask_secret_url

__all__ = ["Variable", "entries_of", "environment", "read_env_file", "read_secrets"]

# A certificate chain has some kilobytes; a core file mounted by mistake has more.
MOST_BYTES: Final = 1_048_576


class Variable(NamedTuple):
    """A value by the name of a variable.

    Attributes:
        name: ``Persistence__Mongo__Database``.
        value: the text; ``None`` where only the name stands.
        source: where it came from, ready for a message.
    """

    name: str
    value: str | None
    source: str


def key_of(name: str) -> ConfigPath:
    """Return the key that a name says: ``A__B``, or ``A:B`` where a name may be so."""
    return tuple(name.replace(":", "__").split("__"))


def is_ours(name: str, tops: frozenset[str]) -> bool:
    """Whether a name says a key below a known section; ``WORKER`` alone is somebody else's."""
    top, *below = key_of(name)
    return bool(below) and top.casefold() in tops


def entries_of(variables: Iterable[Variable], tops: frozenset[str]) -> Iterator[SettingsEntry]:
    """Yield the values below known sections.

    Raises:
        ConfigurationError: one of them has no value.
    """
    for name, value, source in variables:
        if not is_ours(name, tops):
            continue
        if value is None:
            raise ConfigurationError(f"{source} has no value; write {mask_secret_url(name)}=value.")
        yield SettingsEntry(key_of(name), value, source)


def environment(environ: Mapping[str, str]) -> Iterator[Variable]:
    """Yield the variables of the environment."""
    for name, value in environ.items():
        yield Variable(name, value, f"environment variable {mask_secret_url(name)}")


def read_env_file(path: Path, origin: str, environ: Mapping[str, str]) -> Iterator[Variable]:
    """Yield the lines of an environment file; ``${NAME}`` stands for the value of another variable.

    Args:
        path: where it is.
        origin: who named it, for messages.
        environ: the environment, which wins over the lines, also where one of them names another.

    Raises:
        ConfigurationError: it cannot be read, a line is malformed, or another variable has no value.
    """
    from dotenv.parser import parse_stream  # noqa: PLC0415  # few hosts have such a file

    # Not DotEnvSettingsSource: in what it makes of a text, lines win over the environment.
    lines: dict[str, str | None] = {}
    known = ChainMap[str, str | None]({**environ}, lines)
    for item in parse_stream(StringIO(read_text(path, "Environment file", origin))):
        begin = item.original.string
        line = item.original.line + begin[: len(begin) - len(begin.lstrip())].count("\n")
        if item.error:
            raise ConfigurationError(f"Environment file {path}, line {line} is malformed; write NAME=value.")
        if item.key is None:
            continue
        source = f"environment file {path}, line {line}"
        lines[item.key] = None if item.value is None else _filled_in(item.value, known, source)
        yield Variable(item.key, lines[item.key], source)


def _filled_in(value: str, known: Mapping[str, str | None], source: str) -> str:
    """Return a value with those of other variables in place of their names."""
    from dotenv.variables import Variable as Name  # noqa: PLC0415  # few hosts have such a file
    from dotenv.variables import parse_variables  # noqa: PLC0415  # the same

    parts = tuple(parse_variables(value))
    # Unnamed in the message: where a password holds this text, the name is a part of it.
    if any(isinstance(part, Name) and part.default is None and part.name not in known for part in parts):
        raise ConfigurationError(
            f"The value in {source} has a ${{NAME}} that is not set above it; set it, or put a value "
            "with this text into a secret file or into the environment."
        )
    return "".join(part.resolve(known) for part in parts)


def read_secrets(directory: Path, origin: str, tops: frozenset[str]) -> Iterator[Variable]:
    """Yield the secret files of a directory: each has the name of a variable and holds its value.

    Raises:
        ConfigurationError: the directory or one of our files in it cannot be read, or is something else.
    """
    try:
        names = sorted(entry.name for entry in directory.iterdir() if is_ours(entry.name, tops))
    except OSError as error:
        raise ConfigurationError(
            f"Secrets directory {directory} ({origin}) cannot be read: {error.strerror}; "
            "name a directory with a file for each key."
        ) from error
    for name in names:
        yield Variable(
            name, _secret(directory, name), f"secret file {mask_secret_url(str(directory / name))}"
        )


def _secret(directory: Path, name: str) -> str:
    from pydantic import create_model  # noqa: PLC0415  # few hosts have such files
    from pydantic_settings import BaseSettings, SecretsSettingsSource, SettingsError  # noqa: PLC0415  # the same

    # Its overloads know no field whose name is a value.
    make = cast("Callable[..., type[BaseSettings]]", create_model)
    path = directory / name
    try:
        problem = _unfit(directory, path)
        if not problem:
            model = make("Secret", __base__=BaseSettings, **{name: (str, ...)})
            value = str(SecretsSettingsSource(model, directory.absolute(), case_sensitive=True)()[name])
            # Windows editors put a byte order mark in front, and an environment file may have one as well.
            return value.removeprefix("\ufeff").strip()
    except SettingsError as error:
        cause = error.__cause__
        problem = f"cannot be read: {cause.strerror}" if isinstance(cause, OSError) else "is not UTF-8"
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    # Outside the handlers: what could not be decoded is part of the error.
    raise ConfigurationError(f"Secret file {mask_secret_url(str(path))} {problem}.")


def _unfit(directory: Path, path: Path) -> str:
    """Say why a file is none of ours, or nothing. Kubernetes mounts links to files in the same directory."""
    if not path.is_file():
        return "is not a file; give each key a file with its name"
    if directory.resolve() not in path.resolve().parents:
        return "is a link that leads out of its directory; put the file itself there"
    if path.stat().st_size > MOST_BYTES:
        return f"is larger than {MOST_BYTES:,} bytes; it should hold one value"
    return ""
