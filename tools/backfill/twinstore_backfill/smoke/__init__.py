"""``twinstore smoke``: one configured store is looked at and tried, and left as it was."""
