"""A host of the library: fills it, and prints what it holds, on the store that the settings name.

python -m library_host fill|show SETTINGS
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from acme_library.aio import AsyncLibraryStorage
from acme_library.books import Book
from acme_library.storage import LibraryStorage
from acme_library.subjects import Subject
from twinstore import aio, open_storage
from twinstore.module import CanonicalJsonSerializer, CanonicalModel

NOON: Final = datetime(2025, 10, 26, 12, tzinfo=UTC)
TENANTS: Final = ("acme", "globex")
# As texts they would sort otherwise.
NUMBERS: Final = (510, 9, 1000, 52, 2_147_483_647)


def book(tenant: str, number: int) -> Book:
    """Return a book; every third one is gone."""
    gone_at = NOON + timedelta(days=number) if number % 3 == 0 else None
    bought_at = NOON + timedelta(milliseconds=number // 2)
    return Book(
        id=f"{tenant}-{number}",
        tenant_id=tenant,
        title=f"Über Speicher {number}",
        bought_at=bought_at,
        gone_at=gone_at,
    )


def fill(path: Path) -> None:
    """Store the subjects, and the books of one tenant."""
    with open_storage(path) as storage:
        library = storage.module("library", LibraryStorage)
        library.check_ready()
        with library.transaction(purpose="new subjects") as unit:
            for number in NUMBERS:
                unit.subjects.put(Subject(scheme="ddc", number=number, title=f"Subject {number}"))
        with library.transaction("acme") as unit:
            for number in range(5):
                unit.books.put(book("acme", number))


async def fill_async(path: Path) -> None:
    """Store the books of another tenant."""
    async with aio.open_storage(path) as storage:
        library = storage.module("library", AsyncLibraryStorage)
        async with library.transaction("globex") as unit:
            for number in range(5):
                await unit.books.put(book("globex", number))


def texts(models: Iterable[CanonicalModel]) -> list[str]:
    """Return models in their one canonical form."""
    return [CanonicalJsonSerializer.serialize(model).decode() for model in models]


def show(path: Path) -> dict[str, list[str]]:
    """Return all rows in the order of the lists."""
    with open_storage(path) as storage:
        library = storage.module("library", LibraryStorage)
        library.check_ready()
        found = {tenant: texts(library.books.list(tenant)) for tenant in TENANTS}
        return {**found, "ddc": texts(library.subjects.list("ddc"))}


async def show_async(path: Path) -> dict[str, list[str]]:
    """Return the same, the books in pages of two and the subjects one by one in the session of a tenant."""
    found: dict[str, list[str]] = {}
    async with aio.open_storage(path) as storage:
        library = storage.module("library", AsyncLibraryStorage)
        for tenant in TENANTS:
            async with library.session(tenant) as session:
                page = await session.books.list(tenant, limit=2)
                books = [*page]
                while page.next_page_token is not None:
                    page = await session.books.list(tenant, limit=2, page_token=page.next_page_token)
                    books += page
                subjects = [await session.subjects.get("ddc", number) for number in sorted(NUMBERS)]
            found[tenant] = texts(books)
            found["ddc"] = texts(subject for subject in subjects if subject is not None)
    return found


def main(command: str, settings: str) -> None:
    """Run one of the commands; both print what is stored then."""
    path = Path(settings)
    if command == "fill":
        fill(path)
        asyncio.run(fill_async(path))
    print(json.dumps({"sync": show(path), "async": asyncio.run(show_async(path))}))


if __name__ == "__main__":
    main(*sys.argv[1:])
