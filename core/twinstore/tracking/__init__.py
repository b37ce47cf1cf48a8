"""Tracking; this release knows its settings only."""
