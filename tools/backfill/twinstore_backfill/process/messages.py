"""The messages of a process on stderr, apart from its result: lines for people, or JSON for programs."""

from __future__ import annotations

import logging
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import orjson
from typing_extensions import override

from twinstore_backfill.process.secrets import REDACTOR, RedactingFormatter

if TYPE_CHECKING:
    from collections.abc import Mapping
    from threading import ExceptHookArgs

SERVICE_LOG: Final = "twinstore.service"
LOGGER_NAME: Final = "twinstore"
# What every record has; whatever else it carries was given as `extra`.
BUILT_IN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class LogFormat(StrEnum):
    """How lines on stderr look."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Messages:
    """How a process talks; what it starts for its work talks in the same way.

    Attributes:
        level: the lowest level of the log that is shown.
        quiet: whether only errors are shown, and no progress.
    """

    level: int = logging.WARNING
    format: LogFormat = LogFormat.TEXT
    quiet: bool = False


# Of the process, as its stderr is.
_message_settings = Messages()


def message_settings() -> Messages:
    """Return how this process talks."""
    return _message_settings


def set_messages(messages: Messages) -> None:
    """Choose how this process talks, and send its log to stderr; every process of a command calls this."""
    global _message_settings  # noqa: PLW0603  # see above
    _message_settings = messages
    log_to_stderr(messages.level, messages.format)


def log_to_stderr(level: int, form: LogFormat = LogFormat.TEXT) -> None:
    """Send the log of this process to stderr without any secret."""
    handler = logging.StreamHandler(sys.stderr)
    text = RedactingFormatter("%(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if form is LogFormat.JSON else text)
    if level > logging.DEBUG:
        # Of a service, whose operator reads a log; a command says itself where it ended and why.
        handler.addFilter(lambda record: record.name != SERVICE_LOG)
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # The drivers below us log the commands they send, which hold data.
    for name in ("pymongo", "psycopg", "psycopg.pool"):
        logging.getLogger(name).setLevel(logging.ERROR)


class JsonFormatter(RedactingFormatter):
    """Formats a record as one line of JSON: time, level, logger, message, and its ``extra``."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        more = {name: value for name, value in vars(record).items() if name not in BUILT_IN}
        text = record.getMessage()
        if record.exc_info:
            more["traceback"] = self.formatException(record.exc_info)
        return json_line(
            record.levelname, record.name, text, more, datetime.fromtimestamp(record.created, UTC)
        )


def json_line(
    level: str, logger: str, message: str, more: Mapping[str, object], time: datetime | None = None
) -> str:
    """Return one line for programs, without its end; the time is RFC 3339 in UTC."""
    document = {
        **{name: _cleaned(value) for name, value in more.items()},
        "time": (time or datetime.now(UTC)).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": level.lower(),
        "logger": logger,
        "message": REDACTOR.clean(message),
    }
    # In the order in which a person who reads it after all wants it.
    first = ("time", "level", "logger", "message")
    ordered = {name: document.pop(name) for name in first} | document
    return orjson.dumps(ordered, default=_text, option=orjson.OPT_NON_STR_KEYS).decode()


def _cleaned(value: object) -> object:
    if isinstance(value, str):
        return REDACTOR.clean(value)
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_cleaned(item) for item in value]
    return value


def _text(value: object) -> str:
    """Return what JSON has no form for, such as a path."""
    return REDACTOR.clean(str(value))


def warn(text: str) -> None:
    """Say something that changes no outcome, unless only errors are wanted."""
    if _message_settings.quiet:
        return
    if _message_settings.format is LogFormat.JSON:
        write_stderr(json_line("WARNING", LOGGER_NAME, text, {}) + "\n")
    else:
        write_stderr(f"warning: {text}\n")


def write_stderr(text: str) -> None:
    """Write to stderr if anybody listens there."""
    with suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


# Uncaught exceptions, in a thread or while an object is removed: a line of the log, never a traceback.


log = logging.getLogger(__name__)


def install_exception_hooks() -> None:
    """Send to the log what Python would print by itself; every process of a command calls this."""
    threading.excepthook = _log_thread_exception
    sys.unraisablehook = _log_unraisable
    # A log that cannot be written, such as to a closed pipe, does not justify a traceback there.
    logging.raiseExceptions = False


def _log_thread_exception(arguments: ExceptHookArgs) -> None:
    name = arguments.thread.name if arguments.thread else "a thread"
    log.warning("%s ended with an unexpected %s", name, arguments.exc_type.__name__)
    log.debug("%s ended", name, exc_info=arguments.exc_value)


def _log_unraisable(arguments: sys.UnraisableHookArgs) -> None:
    # The object is gone either way; drivers close connections here whose server may be away.
    log.debug(
        "unexpected %s while an object was removed", arguments.exc_type.__name__, exc_info=arguments.exc_value
    )
