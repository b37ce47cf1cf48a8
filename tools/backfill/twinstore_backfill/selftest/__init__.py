"""The self-test of the verification: it plants corruptions of every kind and counts what is found of them."""
