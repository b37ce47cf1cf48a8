"""The operations of :class:`twinstore.access.protocol.Access` on the rows of any entity.

An upsert is called ``put`` here: insert or replace. ``change`` reads rows under a lock, asks a rule and
writes what it returns. ``mark`` and ``amend`` set fields of rows without reading them first.

There are four ways to run them (:mod:`execution`), with these transactions:

- Each call by itself, or in a session: a transaction of its own at READ COMMITTED, which locks what it will
  write.
- A unit of a caller: one transaction at REPEATABLE READ, in which the first writer of a row wins.
- A caller's own connection, joined by ``bind``: its transaction, which is never ended here.

A step that lost a race, by a serialisation failure, a deadlock or a key that a rival has just inserted,
wrote nothing, and is repeated by :func:`twinstore.access.retry.repeat` for at most ten seconds. Inside a unit
nothing is repeated: the unit as a whole is, by ``transact``. A call whose connection was lost is never
repeated, because it may have been applied.
"""
