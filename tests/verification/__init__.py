"""The verification report: what the suite proves, by group and driver, and which method which case exercises.

python -m tests.verification [--only postgres] [--out DIRECTORY] [--update-docs]
"""
