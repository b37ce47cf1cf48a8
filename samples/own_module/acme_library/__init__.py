"""A library as a module of twinstore."""
