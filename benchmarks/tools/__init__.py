"""Other tools that move a collection into a table, beside the command line and the hand-written script."""
