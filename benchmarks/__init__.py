"""Measures copy, verify and single operations against the raw servers and a hand-written script."""
