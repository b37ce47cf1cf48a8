"""What the server says of itself, by which two databases are told apart."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from pymongo.errors import OperationFailure

from twinstore_mongo.errors import loggable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore_mongo.connection import Client, OpenDatabase

__all__ = ["identity_of", "instance_of"]

log = logging.getLogger("twinstore.mongo")

# Not every user may ask, and a router of a sharded cluster has no set of its own: Unauthorized,
# CommandNotFound, NoReplicationEnabled, and AtlasError.
UNANSWERED: Final = frozenset({13, 59, 76, 8000})


def identity_of(store: OpenDatabase) -> str:
    """Return what tells this database from every other one, whatever name led here."""
    with store.limited():
        return f"{server_of(store.client)}/{store.database.name}"


def instance_of(store: OpenDatabase) -> str | None:
    """Return what tells this database of the running server, ``None`` where it tells nothing of itself."""
    with store.limited():
        topology = store.client.admin.command("hello").get("topologyVersion")
    return None if topology is None else f"{topology['processId']}/{store.database.name}"


def server_of(client: Client) -> str:
    """Return the number that a replica set was given when it was made.

    A user who may not ask for it gets the members that the set itself names. A server without a set is told
    by its own address.
    """
    hello = client.admin.command("hello")
    if "setName" not in hello:
        return str(hello.get("me") or address_of(client))
    try:
        config = client.admin.command("replSetGetConfig")["config"]
    except OperationFailure as error:
        if error.code not in UNANSWERED:
            raise
        log.debug("The replica set does not tell its number (%s); its members name it.", loggable(error))
        return members_of(hello)
    return str(config["settings"]["replicaSetId"])


def members_of(hello: Mapping[str, object]) -> str:
    """Return the name of a set and its members, in the order of their names."""
    hosts = hello.get("hosts")
    return f"{hello['setName']} {','.join(sorted(map(str, hosts if isinstance(hosts, list) else [])))}"


def address_of(client: Client) -> str:
    """Return the address at which a server without a set is reached."""
    return ":".join(map(str, client.address or ()))
