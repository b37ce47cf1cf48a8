"""The operations of :class:`twinstore.access.protocol.Access` on the documents of any entity.

An upsert is called ``put`` here: insert or replace. ``change`` reads rows, asks a rule and writes what it
returns, each row under the condition that it has not changed since. ``mark`` and ``amend`` set fields of
documents without reading them first.

There are three ways to run them (:mod:`execution`): each call alone, in a session, or in a transaction, which
a unit opens or a caller has opened and joins by ``bind``.

What may happen when a call fails:

- pymongo repeats a single read or write once after a lost connection (``retryReads``, ``retryWrites``).
- A write that lost a race is repeated by :func:`twinstore.access.retry.retry` for at most ten seconds;
  writers of one process queue meanwhile instead of losing to each other again. Inside a unit nothing is
  repeated: the unit as a whole is, by ``transact``.
- A step that needs several writes runs in a separate transaction, repeated in the same way; only the commit
  is requested again if its answer got lost.
"""
