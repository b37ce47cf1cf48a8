"""Twinstore on SQLite: every module, in one file."""
