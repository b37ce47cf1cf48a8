"""Whether a sharded cluster may move documents from one shard to another meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pymongo.errors import OperationFailure

from twinstore_mongo.client.identity import UNANSWERED, address_of, is_router

if TYPE_CHECKING:
    from twinstore_mongo.client.types import Client, Document

UNAUTHORIZED: Final = 13
# The modes in which a balancer moves nothing.
STILL: Final = frozenset({"off", "autoSplitOnly"})


def status_of(client: Client) -> Document:
    """Return what a router says of the balancer."""
    return client.admin.command("balancerStatus")


def balancer_remark(client: Client) -> str | None:
    """Return a sentence where the balancer of a cluster may move documents, or where that is not known."""
    if not is_router(client):
        return None
    try:
        mode = str(status_of(client).get("mode"))
    except OperationFailure as error:
        if error.code not in UNANSWERED:
            raise
        if error.code != UNAUTHORIZED:
            return None
        return (
            f"The user of the router {address_of(client)} may not read whether the balancer is on; grant it "
            "the role read on the database config."
        )
    if mode in STILL:
        return None
    return (
        f"The balancer of the cluster behind {address_of(client)} is on (mode {mode}). While it moves "
        "documents, reads are slower, and a read of the past may fail; sh.stopBalancer() stops it, "
        "sh.startBalancer() starts it again."
    )
