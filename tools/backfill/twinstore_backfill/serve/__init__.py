"""A read-only page of the jobs in a ledger. Needs ``twinstore[serve]``.

ledger -> snapshot, one query at a time -> app, which shows the last snapshot to any number of browsers
"""
