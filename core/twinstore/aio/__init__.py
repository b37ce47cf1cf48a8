"""The library for asyncio: a typed facade over the synchronous one, generated from its Protocols.

Every call runs in a worker thread; nothing is asynchronous by context.
"""

from __future__ import annotations

from twinstore.aio.scheduler import AsyncSchedulerSession
from twinstore.aio.storage import AsyncSchedulerStorage, AsyncStorage, open_storage

__all__ = ["AsyncSchedulerSession", "AsyncSchedulerStorage", "AsyncStorage", "open_storage"]
