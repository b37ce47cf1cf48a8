"""The scheduler in memory."""
