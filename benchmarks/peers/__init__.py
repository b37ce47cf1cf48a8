"""Claims, whole lives of jobs, firing and locks, compared with bare statements and with other libraries.

Worker processes repeat the same work until their time is up (``crew``). Each knows several ways to do it
(``contender``): with this library, with its bare statements, with procrastinate and with APScheduler. The
parent fills the tables before each slice (``stock``) and reads what the server needed (``servers``).
"""
