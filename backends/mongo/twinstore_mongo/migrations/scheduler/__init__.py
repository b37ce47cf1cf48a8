"""Steps of the scheduler."""
