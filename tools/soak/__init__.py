"""A small service and workers under random faults, and a judge of the data that they leave.

Workers exercise the whole scheduler and are killed. Services serve several tenants with threads and
asyncio tasks; they fork, cancel calls and overload their pools. Meanwhile servers are restarted, hang or run
out of disk space, and connections to them stall or are cut.

python -m tools.soak [--minutes 10] [--seed 7] [--only postgres] [--faults stall,cut]

The seed decides what happens. The databases are tested one after the other, each for the given minutes:

    kill     workers and one service are killed; PostgreSQL and mongod are shut down or killed, a primary
             steps down
    stall    the server (SIGSTOP), or a proxy before it, is frozen for up to 8 s; a call may take 6 s
    cut      the proxy ends connections in the middle of a message
    network  each of these for 1, 10 or 60 s, if the soak is ten times as long: 200 ms more each way; one part
             in a hundred 200 ms late, as if it were sent again; 10 kB/s; what the server says gets lost and
             connections stay open; connections end in every message; no connection at all
    disk     the file system of the server is full, where one can be mounted, which takes root;
             PostgreSQL refuses writes and lives, mongod ends itself and is started again
    fork     a service forks inside a session while its threads are working; both processes continue, for
             different tenants
    cancel   asyncio tasks are cancelled, or their callers stop waiting for them, within 30 ms
    pool     three times as many concurrent units as the pool has connections

The journal of all processes is judged against the stored data: confirmed writes are stored, refused writes
are not, and every other write is stored completely or not at all; no process read a row of another tenant;
locks excluded each other; services answered again after each fault; at the end no transaction, connection,
thread or file is left. The command prints a column for each database (``mongo`` is a replica set of one node,
``mongo-set`` one of three) and exits with 1 on any violation; ``--journals DIRECTORY`` keeps the files that
are needed to investigate it.
"""
