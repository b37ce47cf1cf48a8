"""Making a mongod the writable primary of a set of one."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pymongo import MongoClient
from pymongo.errors import AutoReconnect, OperationFailure

from twinstore_embedded.ports import HOST

_logger = logging.getLogger("twinstore.embedded")

SET_NAME = "twinstore"
NOT_YET_INITIALIZED = 94
# The node is not a member of the stored configuration, because its port has changed.
INVALID_CONFIG = 93

Document = dict[str, Any]
Client: TypeAlias = "MongoClient[Document]"


@dataclass(frozen=True, slots=True)
class Login:
    """A user of the database ``admin``."""

    user: str
    password: str = field(repr=False)


def is_primary(port: int) -> bool:
    """Return whether the node accepts writes; initiate its set or follow a changed port on the way there."""
    with client_of(port) as client:
        return ensure_primary(client, port)


def is_standalone(port: int) -> bool:
    """Return whether a standalone server accepts writes."""
    with client_of(port) as client:
        return is_writable(client)


def client_of(port: int, login: Login | None = None) -> Client:
    """Return a client of this one node."""
    return MongoClient(
        HOST,
        port,
        directConnection=True,
        # Short, because the caller asks again until its own time is over.
        serverSelectionTimeoutMS=1000,
        socketTimeoutMS=10000,
        username=login.user if login else None,
        password=login.password if login else None,
    )


def ensure_primary(client: Client, port: int) -> bool:
    """Return whether the node accepts writes; initiate its set or follow a changed port on the way there."""
    return is_writable(client) or _advance(client, port)


def is_writable(client: Client) -> bool:
    """Return whether the node accepts writes now."""
    try:
        return bool(client.admin.command("hello").get("isWritablePrimary"))
    except AutoReconnect:  # not up yet, or restarting; asked again many times a second, so not logged
        return False


def _advance(client: Client, port: int) -> bool:
    try:
        client.admin.command("replSetGetStatus")
    except AutoReconnect:
        return False
    except OperationFailure as error:
        _repair(client, port, error)
    return is_writable(client)


def _repair(client: Client, port: int, error: OperationFailure) -> None:
    """Give the node a configuration that names it; repeated until one is accepted."""
    member = {"_id": 0, "host": f"{HOST}:{port}"}
    try:
        if error.code == NOT_YET_INITIALIZED:
            client.admin.command("replSetInitiate", {"_id": SET_NAME, "members": [member]})
        elif error.code == INVALID_CONFIG:
            config = client.admin.command("replSetGetConfig")["config"]
            # Forced, because a set whose only member has another port has no primary that could agree.
            changed = {
                **config,
                "version": config["version"] + 1,
                "members": [{**config["members"][0], **member}],
            }
            client.admin.command("replSetReconfig", changed, force=True)
    except (OperationFailure, AutoReconnect) as refusal:
        # The node may be changing its state this moment; the caller asks again until its time is over.
        _logger.debug("the node on port %d refuses its configuration: %s", port, type(refusal).__name__)
