"""The contracts of tracking, by subject."""
