"""Measures copy, verify and single operations against the raw servers and a typical script."""
