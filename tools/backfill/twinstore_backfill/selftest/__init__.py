"""The self-test of the verification: it plants corruptions of every kind and counts which of them are found."""
