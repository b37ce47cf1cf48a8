"""What distinguishes a database from every other one, whatever host name was used."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from pymongo.errors import OperationFailure

from twinstore_mongo.client.errors import loggable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore_mongo.client.database import OpenDatabase
    from twinstore_mongo.client.types import Client, Document

log = logging.getLogger("twinstore.mongo")

# Not every user may ask, and some servers know no such command: Unauthorized, CommandNotFound,
# NoReplicationEnabled, and AtlasError.
UNANSWERED: Final = frozenset({13, 59, 76, 8000})


def identity_of(store: OpenDatabase) -> str:
    """Return what distinguishes this database from every other one, whatever host name was used."""
    with store.limited():
        return f"{server_of(store.client)}/{store.database.name}"


def instance_of(store: OpenDatabase) -> str | None:
    """Return what distinguishes this database of the running server, ``None`` if it reports nothing."""
    with store.limited():
        topology = hello_of(store.client).get("topologyVersion")
    return None if topology is None else f"{topology['processId']}/{store.database.name}"


def server_of(client: Client) -> str:
    """Return the number that a replica set, or the cluster of a router, was given when it was made.

    A user who may not ask for it gets the members that the set itself names. A server without a set is
    identified by its own address, and so is a router that does not say where it leads.
    """
    if is_router(client):
        return cluster_of(client) or f"router {address_of(client)}"
    hello = hello_of(client)
    if "setName" not in hello:
        return str(hello.get("me") or address_of(client))
    try:
        config = client.admin.command("replSetGetConfig")["config"]
    except OperationFailure as error:
        if error.code not in UNANSWERED:
            raise
        log.debug(
            "The replica set does not report its number (%s); it is identified by its members.",
            loggable(error),
        )
        return members_of(hello)
    return str(config["settings"]["replicaSetId"])


def router_needs(client: Client) -> str | None:
    """Return what to grant where a router does not say to which cluster it leads."""
    if not is_router(client) or cluster_of(client) is not None:
        return None
    return (
        f"The user of the router {address_of(client)} may not read to which cluster that leads; grant it the "
        "role read on the database config."
    )


def hello_of(client: Client) -> Document:
    """Return what a server says of itself."""
    return client.admin.command("hello")


def is_router(client: Client) -> bool:
    """Whether a router of a sharded cluster answers."""
    return hello_of(client).get("msg") == "isdbgrid"


def cluster_of(client: Client) -> str | None:
    """Return the number of the cluster of a router, ``None`` if the user may not read it."""
    try:
        found = client["config"]["version"].find_one({}, {"clusterId": 1})
    except OperationFailure as error:
        if error.code not in UNANSWERED:
            raise
        log.debug("The cluster does not report its number (%s).", loggable(error))
        return None
    number = None if found is None else found.get("clusterId")
    return None if number is None else f"cluster {number}"


def members_of(hello: Mapping[str, object]) -> str:
    """Return the name of a set and its members, in the order of their names."""
    hosts = hello.get("hosts")
    return f"{hello['setName']} {','.join(sorted(map(str, hosts if isinstance(hosts, list) else [])))}"


def address_of(client: Client) -> str:
    """Return the address at which a server without a set is reached."""
    return ":".join(map(str, client.address or ()))
