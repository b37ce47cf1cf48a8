"""Proves that two stores hold the same; shares no paging and no decoding with the copy."""
