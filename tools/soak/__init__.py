"""A small service and workers under faults that are chosen at random, and a judge of what they left.

Workers move everything of the scheduler and are killed. Services serve several tenants by threads and asyncio
tasks; they fork, give calls up and overcrowd their pools. Meanwhile servers are
restarted, stand still or run out of disk, and connections to them stall or are cut.

python -m tools.soak [--minutes 10] [--seed 7] [--only postgres] [--faults stall,cut]
"""
