"""Connections that end in the middle of a message, on the way to the server or back."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.soak.proxy import Proxy

__all__ = ["cut_connections"]


def cut_connections(proxy: Proxy, meanwhile: Callable[[], object]) -> None:
    """Cut some connections again and again for a while."""
    proxy.cut()
    try:
        meanwhile()
    finally:
        proxy.flow()
