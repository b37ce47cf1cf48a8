"""Copies a module from one store to another: resumable, idempotent, never more than it says."""
