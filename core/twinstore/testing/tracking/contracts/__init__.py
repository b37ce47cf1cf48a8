"""The contracts of tracking, one file for each part."""
