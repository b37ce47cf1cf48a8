"""The faults of a soak, one file for each kind."""
