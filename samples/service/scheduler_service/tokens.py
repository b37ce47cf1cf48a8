"""Whose token it is: a file of tokens, for a trial. Put the check of your provider in its place.

    {"the token": {"tenantId": "acme", "actor": "olga"}}

Without such a file every call is refused. docs/web-service.md shows the check of OpenID Connect.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING

from twinstore.fastapi import Caller

if TYPE_CHECKING:
    from pathlib import Path

    from twinstore.fastapi import Authenticate

__all__ = ["from_file"]


def from_file(path: Path) -> Authenticate:
    """Return what accepts the tokens of a file."""
    listed = json.loads(path.read_text("utf-8"))
    # By their digests: the time of a look-up then says nothing about a token.
    callers = {digest(token): Caller(who["tenantId"], who["actor"]) for token, who in listed.items()}

    async def authenticate(token: str) -> Caller | None:
        return callers.get(digest(token))

    return authenticate


def digest(token: str) -> bytes:
    """Return what stands for a token."""
    return sha256(token.encode()).digest()
