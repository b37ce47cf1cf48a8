"""The memory driver: the executable specification of the contracts, and a fast fake for tests."""
