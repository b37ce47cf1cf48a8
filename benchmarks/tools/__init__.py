"""Other tools that move a collection into a table, compared with the command line and the script."""
