"""Making a mongod a writable primary of its own set."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from pymongo import MongoClient
from pymongo.errors import AutoReconnect, OperationFailure

from twinstore_embedded.ports import HOST

__all__ = ["SET_NAME", "is_primary", "is_standalone"]

SET_NAME = "twinstore"
NOT_YET_INITIALIZED = 94
# The node is not a member of the stored configuration, because its port has changed.
INVALID_CONFIG = 93

Document = dict[str, Any]


def is_primary(port: int) -> bool:
    """Tell whether the node takes writes; initiate its set or follow a changed port on the way there."""
    with _client(port) as client:
        return _writable(client) or _advance(client, port)


def is_standalone(port: int) -> bool:
    """Tell whether a standalone server takes writes."""
    with _client(port) as client:
        return _writable(client)


def _client(port: int) -> MongoClient[Document]:
    return MongoClient(
        HOST, port, directConnection=True, serverSelectionTimeoutMS=1000, socketTimeoutMS=10000
    )


def _advance(client: MongoClient[Document], port: int) -> bool:
    try:
        client.admin.command("replSetGetStatus")
    except AutoReconnect:
        return False
    except OperationFailure as error:
        _repair(client, port, error)
    return _writable(client)


def _writable(client: MongoClient[Document]) -> bool:
    try:
        return bool(client.admin.command("hello").get("isWritablePrimary"))
    except AutoReconnect:
        return False


def _repair(client: MongoClient[Document], port: int, error: OperationFailure) -> None:
    """Give the node a configuration that names it; repeated until one is accepted."""
    member = {"_id": 0, "host": f"{HOST}:{port}"}
    with suppress(OperationFailure, AutoReconnect):
        if error.code == NOT_YET_INITIALIZED:
            client.admin.command("replSetInitiate", {"_id": SET_NAME, "members": [member]})
        elif error.code == INVALID_CONFIG:
            config = client.admin.command("replSetGetConfig")["config"]
            changed = {
                **config,
                "version": config["version"] + 1,
                "members": [{**config["members"][0], **member}],
            }
            client.admin.command("replSetReconfig", changed, force=True)
