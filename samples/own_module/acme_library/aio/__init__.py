"""Library for asyncio, as ``twinstore dev aio`` wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acme_library.aio.books import AsyncBookRepository
from acme_library.aio.copies import AsyncCopyRepository
from acme_library.aio.subjects import AsyncSubjectRepository
from acme_library.storage import LibrarySession
from twinstore.aio.storage import AsyncModuleStorage

if TYPE_CHECKING:
    from acme_library.storage import LibraryStorage
    from twinstore.aio.calls import CallThreads, SharedThreads


__all__ = [
    "AsyncBookRepository",
    "AsyncCopyRepository",
    "AsyncLibrarySession",
    "AsyncLibraryStorage",
    "AsyncSubjectRepository",
]


class AsyncLibrarySession:
    """The repositories and services, bound or unbound as the session behind them."""

    def __init__(self, session: LibrarySession, threads: CallThreads) -> None:
        """Take the synchronous session and the threads to call it in."""
        self.books = AsyncBookRepository(session.books, threads)
        self.copies = AsyncCopyRepository(session.copies, threads)
        self.subjects = AsyncSubjectRepository(session.subjects, threads)


class AsyncLibraryStorage(AsyncModuleStorage[LibrarySession, AsyncLibrarySession], AsyncLibrarySession):
    """Repositories, services, sessions and units of work."""

    def __init__(self, storage: LibraryStorage, threads: SharedThreads) -> None:
        """Take the synchronous storage and the threads to call it in."""
        super().__init__(storage, threads, AsyncLibrarySession)
        AsyncLibrarySession.__init__(self, storage.unbound, threads)
