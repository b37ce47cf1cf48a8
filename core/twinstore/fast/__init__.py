"""The fast path: rows that native code reads, checks and writes in batches, without an object for each value.

It may decline any row, and then the models decide as ever; it accepts only what it proves. It never refuses a
row and never judges one to differ. Without the library everything works, slower.
"""
