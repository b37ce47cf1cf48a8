"""A third-party module: books, an entity that the library itself does not know."""
