"""Tables, indexes, policies and rights: making them, comparing them with what is wanted, taking them back.

:mod:`files` reads the SQL that a module ships and :mod:`migrator` applies it, each file in one transaction
with its row in the ledger. :mod:`initializer` is what a host calls. :mod:`comparison` reads the catalog of
the server line by line and says each difference in a sentence; :mod:`proposal` makes the next file of a
module from what its descriptions want (:mod:`ddl`) and the shipped schema has not.
"""
