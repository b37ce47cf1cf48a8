"""Other tools that move a collection into a table, in addition to the command line and the typical script."""
