"""A process of the command line: how it starts and ends, stops at a safe point, and what it writes."""
