"""The description of an entity as documents: their fields, their values in BSON, and the order of their keys.

:mod:`layout` derives everything from an ``Entity``. No file of this driver names one.
"""
