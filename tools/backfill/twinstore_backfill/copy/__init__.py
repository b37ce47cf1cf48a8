"""Copies a module from one store to another: resumable, idempotent, never more than it says.

A run of :mod:`engine` takes the lease of the job (:mod:`lease`), cuts each entity into ranges of keys, and
writes them into the ledger of the target. Threads (:mod:`worker`), of several processes if asked
(:mod:`processes`), take one range after the other from the ledger (:mod:`ranges`). A range is read from one
view of the source (:mod:`reader`) and written in one transaction of the target together with its row in the
ledger, so a killed process leaves whole ranges only. What cannot be stored is kept in :mod:`quarantine` with
its reason. Entities go in the order in which they refer to each other.
"""
