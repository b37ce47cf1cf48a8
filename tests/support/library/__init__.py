"""A module of an outsider: books, which the library itself knows nothing of."""
