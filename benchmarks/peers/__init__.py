"""Claims, whole lives of jobs, firing and locks, beside the bare statements and beside other libraries.

Worker processes do the same over and over until their time is up (``crew``). Each knows several ways to do it
(``contender``): with this library, with its bare statements, with procrastinate and with APScheduler. The
parent fills the tables before each slice (``stock``) and reads what the server needed (``servers``).
"""
