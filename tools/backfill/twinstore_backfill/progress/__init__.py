"""How far a running command is: one record, shown as a bar, as lines, or to Prometheus."""
