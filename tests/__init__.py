"""The test suite; servers are found by tests.support.servers."""
