"""The state of a server between runs, its owner, and the lock around its start and stop."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from twinstore.errors import ConfigurationError, Outcome, TimeoutExceededError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_logger = logging.getLogger("twinstore.embedded")

STATE_FILE = "server.json"
# Longer than a start or a stop may take: the holder of the lock ends within those limits.
LOCK_SECONDS = 120.0
POLL_SECONDS = 0.02
# pg_ctl hands these to a shell inside double quotes.
UNSAFE = frozenset('"$`\\\n\r')


class ServerState(BaseModel):
    """The memory of one server directory.

    Attributes:
        port: the last port; kept over restarts while it is free.
        owner: the process that ends with this server; ``None`` when the server outlives its starter.
        passwords: by role name.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    port: int | None = None
    owner: int | None = None
    passwords: dict[str, str] = Field(default_factory=dict, repr=False)


def locate_home(directory: str | Path, directory_name: str) -> Path:
    """Return the absolute directory of one server without touching the disk.

    Raises:
        ConfigurationError: the path has a character that a shell would interpret.
    """
    root = Path(directory).expanduser().resolve()
    if unsafe := sorted(UNSAFE & set(str(root))):
        message = (
            f"The data directory {str(root)!r} contains {unsafe}; choose a path without them (--data-dir)."
        )
        raise ConfigurationError(message)
    return root / directory_name


def open_home(directory: str | Path, directory_name: str) -> Path:
    """Create the directory of one server if needed, private to the user.

    Raises:
        ConfigurationError: the directory cannot be created or written.
    """
    home = locate_home(directory, directory_name)
    # Under root PostgreSQL runs as another user, who has to pass through but may not list.
    mode = 0o711 if os.geteuid() == 0 else 0o700
    try:
        home.parent.mkdir(mode=mode, parents=True, exist_ok=True)
        home.mkdir(mode=mode, exist_ok=True)
    except OSError as error:
        raise _unusable(home, error) from error
    if not os.access(home, os.R_OK | os.W_OK | os.X_OK):
        raise _unusable(home, PermissionError("it belongs to another user"))
    return home


def existing_home(directory: str | Path, directory_name: str) -> Path | None:
    """Return the directory of one server; ``None`` when it was never created.

    Raises:
        ConfigurationError: it belongs to another user.
    """
    home = locate_home(directory, directory_name)
    try:
        # Opened and not only looked for: a directory of another user can be seen without being usable.
        os.close(os.open(home, os.O_RDONLY))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unusable(home, error) from error
    return home


def _unusable(home: Path, error: OSError) -> ConfigurationError:
    reason = error.strerror or error
    return ConfigurationError(
        f"The data directory {home} cannot be used: {reason}. Choose another one with --data-dir, "
        "or run as the user who created it."
    )


@contextlib.contextmanager
def exclusive(home: Path, *, timeout: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold the lock of a server directory; it ends with the process, however that ends.

    The directory itself is locked, so no lock file is left behind.

    Raises:
        TimeoutExceededError: another process held the lock for ``timeout`` seconds.
    """
    descriptor = os.open(home, os.O_RDONLY)
    try:
        if not wait_until(lambda: _try_lock(descriptor), timeout):
            message = f"Another process has been holding the server in {home} for {timeout:.0f} s; try again."
            raise TimeoutExceededError(message, outcome=Outcome.NOT_APPLIED)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    import fcntl  # noqa: PLC0415  # absent on Windows, where the command line must still load

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_until(condition: Callable[[], bool], timeout: float) -> bool:
    """Poll until the condition holds; answer whether it did within ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def load_state(home: Path) -> ServerState | None:
    """Read the state; ``None`` if there is none or it is no longer readable."""
    try:
        return ServerState.model_validate_json((home / STATE_FILE).read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError:
        # Without the error, which quotes the file and with it the passwords.
        _logger.warning("%s is damaged; port, owner and passwords in it are lost", home / STATE_FILE)
        return None


def save_state(home: Path, state: ServerState) -> None:
    """Replace the state in one step, readable by the owner only."""
    write_private(home / STATE_FILE, state.model_dump_json(indent=2).encode())


def write_private(path: Path, content: bytes) -> None:
    """Replace a file in one step with mode 0600; it belongs to the owner of the directory."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        if os.geteuid() == 0:
            owner = path.parent.stat()
            # Root may write into the directory of a user, whose file it stays.
            os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
    Path(name).replace(path)
