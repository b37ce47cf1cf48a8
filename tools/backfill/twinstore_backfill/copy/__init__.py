"""Copies a module from one store to another: resumable, idempotent, never more than it says.

A run of :mod:`engine` takes the lease of the job (:mod:`lease`), cuts each entity into ranges of keys, and
writes them into the ledger of the target. Threads (:mod:`worker`), of several processes if asked
(:mod:`processes`), take one range after the other from the ledger (:mod:`ranges`). A range is read from one
view of the source (:mod:`reader`) and written to the target, the last part of it in one transaction with
its row in the ledger; a range that a killed process left half is copied again. What cannot be stored is
kept in :mod:`quarantine` with its reason. Entities go in the order in which they refer to each other. The
page docs/how-a-copy-works.md has what a killed process leaves at each step.
"""
