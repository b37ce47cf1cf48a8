"""The test suite; servers are found by tests.servers."""
