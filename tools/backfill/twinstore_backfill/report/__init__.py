"""The parity report and its renderings."""
