"""Every entity of every module, there and back: rows, bytes, and the rate per byte compared with runs."""
