"""How a call reaches the server: the client, the database, and what an error means.

A storage has one client (:mod:`client`), its own or that of the application. Its first call asks the server
what it can do (:mod:`connection`). Retries of single reads and writes after a lost connection are pymongo's
own (``retryReads`` and ``retryWrites``). Whatever pymongo raises becomes an error of the library in
:mod:`errors` and nowhere else; it also says whether a write was applied.

:mod:`twinstore_mongo.access` documents which calls are repeated after a lost race.
"""
