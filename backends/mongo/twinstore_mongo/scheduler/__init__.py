"""The scheduler on MongoDB; one file per aggregate, named as in core."""
