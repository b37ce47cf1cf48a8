"""The contracts of the scheduler, one module per topic."""
