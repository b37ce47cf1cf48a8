"""Numbered steps, one folder per module: collections and indexes as JSON."""
