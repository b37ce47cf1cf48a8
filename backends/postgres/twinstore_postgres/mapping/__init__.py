"""The description of an entity as a table: its columns, its values on the wire, and whose rows they are.

:mod:`table` derives everything from an ``Entity``. No file of this driver names one.
"""
