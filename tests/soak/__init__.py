"""Workers that are killed at random while everything of the scheduler moves, and a judge of what they left.

Servers of its own are restarted meanwhile: PostgreSQL is shut down in each way and killed, and of a replica
set of three the primary steps down or is killed, or all members are.

python -m tests.soak [--minutes 10] [--seed 7] [--only postgres]
"""
