"""Workers that are killed at random while everything of the scheduler moves, and a judge of what they left.

python -m tests.soak [--minutes 10] [--seed 7] [--only postgres]
"""
