"""A small service and workers under faults that are chosen at random, and a judge of what they left.

Workers move everything of the scheduler and are killed. Services serve several tenants by threads and
asyncio tasks; they fork, give calls up and overcrowd their pools. Meanwhile servers are restarted, stand
still or run out of disk, and connections to them stall or are cut.

python -m tools.soak [--minutes 10] [--seed 7] [--only postgres] [--faults stall,cut]

The seed decides what happens; each database has its minutes, one after the other:

    kill     workers and one service are killed; PostgreSQL and mongod are shut down or killed, a primary
             steps down
    stall    the server (SIGSTOP), or a proxy before it, stands still for up to 8 s; a call may take 6 s
    cut      the proxy ends connections in the middle of a message
    disk     the file system of the server is full, where one can be mounted, which takes root;
             PostgreSQL refuses writes and lives, mongod ends itself and is started again
    fork     a service forks inside of a session while its threads are at work; both go on, for different
             tenants
    cancel   asyncio tasks are cancelled, or nobody waits for them any longer, within 30 ms
    pool     three times as many units at once as the pool has connections

The journal of all processes is judged against what is stored: what was confirmed is there, what was refused
is not, everything else is there as a whole or not at all; nobody read a row of another tenant; locks
excluded each other; services answered again after each fault; at the end no transaction, connection, thread
or file is left. The command prints a column for each database (``mongo`` is a set of one node, ``mongo-set``
one of three) and ends with 1 at any violation; ``--journals DIRECTORY`` keeps what is needed to look for it.
"""
