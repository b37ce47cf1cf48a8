"""``twinstore smoke``: one configured store is inspected and tried, and left as it was."""
