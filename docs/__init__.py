"""The pages of the documentation, and the programs that write their generated parts."""
