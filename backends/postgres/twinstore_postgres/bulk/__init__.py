"""Whole entities: counting, cutting, exporting, scanning, importing, and the ledger."""
