"""Collections, validators and indexes: making them, comparing them with what is wanted, taking them back.

:mod:`steps` reads the numbered steps that a module ships, and :mod:`migrator` applies them under a lease
(:mod:`lock`), so that one process does so at a time. :mod:`comparison` says each difference between the
wanted schema and the real one in a sentence; :mod:`proposal` makes the next step of a module. Which indexes
an entity wants is in :mod:`twinstore_mongo.mapping.layout`, because the codec needs them too.
"""
