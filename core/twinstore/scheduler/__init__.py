"""twinstore."""
