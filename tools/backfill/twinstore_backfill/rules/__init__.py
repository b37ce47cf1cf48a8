"""The rules of a job: what changes on the way, and what is accepted.

They are data. A copy and a verification each apply them with code of their own.
"""
