"""Users of a mongod: the key file that enables them, the first user, and the users that are added later."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from pymongo import MongoClient
from pymongo.errors import OperationFailure

from twinstore.errors import ConfigurationError
from twinstore_embedded.replica_set import Login, client_of, ensure_primary
from twinstore_embedded.state import write_private

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from twinstore_embedded.replica_set import Client

ADMIN: Final = "twinstore_admin"
KEY_BYTES: Final = 96
PASSWORD_BYTES: Final = 24
UNAUTHORIZED: Final = 13
AUTHENTICATION_FAILED: Final = 18


def key_file(home: Path) -> Path:
    """Return the key of the replica set, made at the first call; it must be the owner's alone."""
    path = home / "key"
    if not path.exists():
        write_private(path, secrets.token_hex(KEY_BYTES).encode())
    return path


def is_primary_with_users(port: int, login: Login, home: Path) -> bool:
    """Return whether the node accepts writes and knows its first user; bring it there step by step."""
    try:
        with client_of(port, login) as client:
            return ensure_primary(client, port)
    except OperationFailure as error:
        # Any other refusal means that the node is not ready yet; the caller asks again.
        if error.code != AUTHENTICATION_FAILED:
            return False
    # As long as there is no user at all, a client on the same host may start the set and create one.
    with client_of(port) as client:
        return ensure_primary(client, port) and _create_admin(client, login, home)


def _create_admin(client: Client, login: Login, home: Path) -> bool:
    try:
        client.admin.command("createUser", login.user, pwd=login.password, roles=["root"])
    except OperationFailure as error:
        # The way that needs no login is closed as soon as there is a user, whose password we do not have.
        if error.code != UNAUTHORIZED:
            raise
        message = f"The passwords of {home} are lost and cannot be reset; delete it to start over."
        raise ConfigurationError(message) from error
    return True


def add_user(url: str, database: str, user: str, roles: Sequence[str]) -> str:
    """Create a user of one database and return its password; one of that name is replaced."""
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    granted = [{"role": role, "db": database} for role in roles]
    with MongoClient[dict[str, object]](url) as client:
        known = client[database].command("usersInfo", user)["users"]
        verb = "updateUser" if known else "createUser"
        client[database].command(verb, user, pwd=password, roles=granted)
    return password


def login_part(user: str, password: str) -> str:
    """Return the part of a URL in front of the host."""
    return f"{quote(user, safe='')}:{quote(password, safe='')}@"
