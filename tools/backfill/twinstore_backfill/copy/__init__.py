"""Copies a module from one store to another: resumable, idempotent, never more than it reports.

A run of :mod:`engine` takes the lease of the job (:mod:`lease`), cuts each entity into ranges of keys, and
writes them into the ledger of the target. Threads (:mod:`worker`), of several processes on request
(:mod:`processes`), take one range after the other from the ledger (:mod:`ranges`). A range is read from one
view of the source (:mod:`reader`) and written to the target, the last part of it in one transaction with
its row in the ledger; a range that a killed process left unfinished is copied again. Rows that cannot be
stored are kept in :mod:`quarantine` with the reason. Entities are copied in the order in which they refer to
each other. The page docs/how-a-copy-works.md describes what a killed process leaves at each step.
"""
