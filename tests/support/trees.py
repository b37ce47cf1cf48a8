"""What the filesystem driver meets below a root and did not write."""

from __future__ import annotations

import os
from socket import AF_UNIX, socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def socket_at(path: Path) -> None:
    """Put a UNIX socket where a file belongs."""
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    # By a descriptor of the folder: the whole path is longer than the address of a socket may be.
    folder = os.open(path.parent, os.O_RDONLY)
    with socket(AF_UNIX) as bound:
        bound.bind(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)


def limited_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a row in a file have 20,000 bytes at most, which a test can write fast."""
    for module in ("appending", "bulk_rows", "forms", "tree"):
        monkeypatch.setattr(f"twinstore_filesystem.{module}.LARGEST", 20_000)
