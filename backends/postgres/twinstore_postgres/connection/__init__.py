"""How a call reaches the server: targets, the pool, transactions, and what an error means.

A storage has one pool (:mod:`pool`), opened at the first call; its first connection is checked for server,
role and defaults. Connections past the pool, for bulk work, migrations and locks, are made by :mod:`direct`.
A call borrows a connection, and a :class:`~twinstore_postgres.connection.transaction.Transaction` begins with
its first statement, sets ``app.tenant_id`` and commits in its last round trip. The statements of a round trip
travel by :mod:`pipeline`, or by psycopg's own cursors where that is off (:mod:`undocumented`). Whatever
psycopg raises becomes an error of the library in :mod:`errors` and nowhere else; it also says whether a
write was applied.

Nothing here is repeated; :mod:`twinstore_postgres.access` documents which calls are.
"""
