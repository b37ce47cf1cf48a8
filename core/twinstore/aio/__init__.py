"""The library for asyncio: a typed facade over the synchronous one, generated from its Protocols.

Every call runs in a worker thread; nothing is asynchronous by context. For each installed module ``library``
there are ``AsyncLibraryStorage`` and ``AsyncLibrarySession``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.aio.paging import each
from twinstore.aio.storage import AsyncModuleStorage, AsyncStorage, open_storage

if TYPE_CHECKING:
    from twinstore.aio import installed
    from twinstore.aio.installed import *  # noqa: F403  # generated: the classes of our modules

__all__ = ["AsyncModuleStorage", "AsyncStorage", "each", "open_storage"]

if TYPE_CHECKING:
    __all__ += installed.__all__
else:
    # As in twinstore itself: complete only when the plug-ins can be read.
    _fixed = tuple(globals().pop("__all__"))

    def __getattr__(name: str) -> object:
        from twinstore.aio import installed  # noqa: PLC0415  # derived when asked for

        if name == "__all__":
            return sorted({*_fixed, *installed.names()})
        try:
            return getattr(installed, name)
        except AttributeError:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None

    def __dir__() -> list[str]:
        return sorted({*globals(), *__getattr__("__all__")})
