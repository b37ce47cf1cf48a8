"""Digests of many documents that do not depend on their order, so that those of ranges combine."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Final

# 128 bits fit into the columns of a report; equality is judged by the documents themselves.
BYTES: Final = 16
MODULUS: Final = 2 ** (8 * BYTES)


def document_digest(content: bytes) -> str:
    """Return the digest of one document as reports show it."""
    return f"sha256:{sha256(content).hexdigest()}"


def document_number(content: bytes) -> int:
    """Return the first 128 bits of the digest of one document."""
    return int.from_bytes(sha256(content).digest()[:BYTES], "big")


@dataclass(slots=True)
class Digest:
    """Count, XOR and sum (modulo 2^128) of document digests.

    XOR alone would miss a document that occurs twice, the sum alone is easier to hit by accident.
    """

    count: int = 0
    xor: int = 0
    sum: int = 0

    def add(self, number: int) -> None:
        """Add one document."""
        self.count += 1
        self.xor ^= number
        self.sum = (self.sum + number) % MODULUS

    def merge(self, other: Digest) -> None:
        """Add the documents of another digest."""
        self.count += other.count
        self.xor ^= other.xor
        self.sum = (self.sum + other.sum) % MODULUS
