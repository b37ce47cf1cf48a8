"""Programs that write source files of this library, run by its developers."""
