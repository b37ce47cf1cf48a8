"""A small scheduler service over HTTP: one program on MongoDB or PostgreSQL, chosen by the configuration.

    python -m scheduler_service                        # the API; configured by TWINSTORE_CONFIG
    python -m scheduler_service.firing                 # fires what is due, returns leases that ran out
    python -m scheduler_service.worker --tenant acme   # claims and executes jobs, over HTTP

A request goes through ``canonical`` (JSON as the library reads and writes it), ``calls`` (whose call it is)
and the file of its resource; an error leaves through ``problems``. Nothing here names a database.
"""
