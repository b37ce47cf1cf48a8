"""Whole entities: counting, cutting, reading through views, and writing ranges."""
