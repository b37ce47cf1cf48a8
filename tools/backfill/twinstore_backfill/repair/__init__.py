"""Mending what a verification named: rows are copied again or removed by their keys, then compared again."""
