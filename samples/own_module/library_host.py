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
from acme_library.copies import Condition, Copy, Shelf
from acme_library.storage import LibraryStorage
from acme_library.subjects import Subject
from twinstore import aio, open_storage
from twinstore.module import CanonicalJsonSerializer, CanonicalModel

NOON: Final = datetime(2025, 10, 26, 12, tzinfo=UTC)
TENANTS: Final = ("acme", "globex")
CONDITIONS: Final = (*Condition,)
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


def copy(tenant: str, number: int) -> Copy:
    """Return the copy of a book; what it holds depends on the number."""
    return Copy(
        book_id=f"{tenant}-{number}",
        number=2**62 + number,
        tag=f"tag {tenant}-{number}",
        condition=CONDITIONS[number % len(CONDITIONS)],
        shelf=Shelf(room="Süd", number=number) if number else None,
        notes={"gift": number % 2 == 0, "pages": [1, None, 2.5]} if number > 1 else {},
    )


def fill(path: Path) -> None:
    """Store the subjects, and the books of one tenant with their copies."""
    with open_storage(path) as storage:
        library = storage.module("library", LibraryStorage)
        library.check_ready()
        with library.transaction(purpose="new subjects") as unit:
            for number in NUMBERS:
                unit.subjects.put(Subject(scheme="ddc", number=number, title=f"Subject {number}"))
        with library.transaction("acme") as unit:
            for number in range(5):
                unit.books.put(book("acme", number))
                unit.copies.put("acme", copy("acme", number))


async def fill_async(path: Path) -> None:
    """Store the books of another tenant with their copies."""
    async with aio.open_storage(path) as storage:
        library = storage.module("library", AsyncLibraryStorage)
        async with library.transaction("globex") as unit:
            for number in range(5):
                await unit.books.put(book("globex", number))
                await unit.copies.put("globex", copy("globex", number))


def texts(models: Iterable[CanonicalModel]) -> list[str]:
    """Return models in their one canonical form."""
    return [CanonicalJsonSerializer.serialize(model).decode() for model in models]


def show(path: Path) -> dict[str, list[str]]:
    """Return all rows in the order of the lists."""
    with open_storage(path) as storage:
        library = storage.module("library", LibraryStorage)
        library.check_ready()
        books = {tenant: library.books.list(tenant) for tenant in TENANTS}
        copies = [
            copy
            for tenant in TENANTS
            for book in books[tenant]
            for copy in library.copies.list(tenant, book.id)
        ]
        found = {tenant: texts(page) for tenant, page in books.items()}
        return {**found, "copies": texts(copies), "ddc": texts(library.subjects.list("ddc"))}


async def show_async(path: Path) -> dict[str, list[str]]:
    """Return the same, the books in pages of two, copies by their tag, and subjects one by one."""
    found: dict[str, list[str]] = {"copies": []}
    async with aio.open_storage(path) as storage:
        library = storage.module("library", AsyncLibraryStorage)
        for tenant in TENANTS:
            async with library.session(tenant) as session:
                books = [book async for book in aio.each(session.books.list, tenant, limit=2)]
                copies = [await session.copies.get_by_tag(tenant, f"tag {book.id}") for book in books]
                subjects = [await session.subjects.get("ddc", number) for number in sorted(NUMBERS)]
            found["copies"] += texts(copy for copy in copies if copy is not None)
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
