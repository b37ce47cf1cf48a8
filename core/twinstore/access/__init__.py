"""The operations on the rows of any entity, which a driver implements and repositories are written in.

:mod:`protocol` states the operations, :mod:`defaults` has those that follow from others, and :mod:`guard` is
the one wrapper with the checks that hold on every driver. An upsert is called ``put`` here.

What happens when a call fails: an error of the client library becomes one of :mod:`twinstore.errors` in the
driver. :func:`~twinstore.access.retry.repeat` repeats what lost a race against another writer
(``ConcurrencyError``), with growing pauses, for at most ten seconds; writers of one process queue meanwhile
(:mod:`retry`). In a unit of work nothing is repeated but the whole of it, by ``transact``. Whatever may
have been applied (``outcome`` is ``unknown``) is never repeated by this library.
"""

from __future__ import annotations

from twinstore.runtime.moved_modules import handed_on

__getattr__ = handed_on(__name__)
