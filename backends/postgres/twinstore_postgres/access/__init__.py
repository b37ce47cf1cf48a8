"""The operations of :class:`twinstore.access.protocol.Access` on the rows of any entity.

An upsert is called ``put`` here: insert or replace. ``change`` reads rows under a lock, asks a rule and
writes what it returns. ``mark`` and ``amend`` set fields of rows without reading them first.

There are four ways to run them (:mod:`execution`), with these transactions:

- A single call, alone or in a session: a separate transaction at READ COMMITTED, which locks the rows to be
  written.
- A unit of a caller: one transaction at REPEATABLE READ, in which the first writer of a row wins.
- A caller's own connection, joined by ``bind``: its transaction, which is never ended here.

A step can lose a race: by a serialisation failure, a deadlock, or a key that a concurrent transaction has
just inserted. It has written nothing then, and :func:`twinstore.access.retry.retry` repeats it for at most
ten seconds. Inside a unit no step is repeated: ``transact`` repeats the unit as a whole. A call whose
connection was lost is never repeated, because it may have been applied.
"""
