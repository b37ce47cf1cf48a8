"""Other tools that move a collection into a table, apart from the command line and the hand-written script."""
