"""The contracts of the scheduler, by subject."""
