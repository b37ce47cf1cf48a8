"""What ``evolve`` of the models takes, as ``twinstore dev changes`` wrote it."""
