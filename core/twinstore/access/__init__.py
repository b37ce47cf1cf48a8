"""The operations on the rows of any entity, which a driver implements and repositories are written in.

:mod:`protocol` states the operations, :mod:`defaults` has those that follow from others, and :mod:`guard` is
the one wrapper with the checks that hold on every driver. An upsert is called ``put`` here.

What happens when a call fails: an error of the client library becomes one of :mod:`twinstore.errors` in the
driver. :func:`~twinstore.access.retry.retry` repeats what lost a race against another writer
(``ConcurrencyError``), with growing pauses, for at most ten seconds; writers of one process queue meanwhile
(:mod:`retry`). In a unit of work nothing is repeated but the whole of it, by ``transact``. Whatever may
have been applied (``outcome`` is ``unknown``) is never repeated by this library, but for the commit of
MongoDB, which may be sent twice. Where else something is tried again:

    connection    the pool of PostgreSQL replaces a closed one; pymongo repeats a read or write once that lost
                  its connection (``retryReads``, ``retryWrites``)
    statement     PostgreSQL looks again for a row that appeared before its insert; MongoDB halves a batch
                  that was refused
    lock, lease   asked for again until the time is over: those of a caller, and that of migrations
    copy          ``Patience`` of the backfill, around ``repeat``; a failed range comes again, five times
"""

from __future__ import annotations

from twinstore.runtime.moved_modules import deprecated_getattr

__getattr__ = deprecated_getattr(__name__)
