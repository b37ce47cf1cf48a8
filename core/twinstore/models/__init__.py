"""Models: values, their fields and shapes, their one canonical form, and the rules that they keep."""
