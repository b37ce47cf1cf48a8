"""Copies modules between stores and proves that both hold the same; speaks the Protocols of core only."""
