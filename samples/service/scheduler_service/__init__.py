"""A small scheduler service over HTTP: one program on MongoDB or PostgreSQL, chosen by the configuration.

    python -m scheduler_service --tokens tokens.json   # the API; configured by TWINSTORE_CONFIG
    python -m scheduler_service.firing                 # fires what is due, returns leases that ran out
    python -m scheduler_service.worker --tenant acme   # claims and executes jobs, over HTTP

A request goes through ``limits`` (size and time of its body), ``canonical`` (JSON as the library reads and
writes it), ``calls`` (whose call it is) and the file of its resource. ``twinstore.fastapi`` answers errors.
Nothing here names a database.
"""
