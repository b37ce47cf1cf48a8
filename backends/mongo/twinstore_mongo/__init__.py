"""The MongoDB driver of twinstore."""
