"""Proves that two stores hold the same rows; shares no paging and no decoding with the copy.

A run of :mod:`engine` counts both sides, cuts the entities into ranges (:mod:`partition`, :mod:`plan`) and
compares each of them: first by digests where both sides have them (:mod:`digest_ranges`), which can only
prove that they are equal, and where those do not agree, row by row (:mod:`ranges`). What a user decided to
ignore is in :mod:`twinstore_backfill.ignored`. What is compared is the canonical JSON of a row as it is
stored on each side, with every field, unknown ones included, against what a copy of the source row stores
(:mod:`expected`). The lists of both sides are queried with the same requests (:mod:`lists`). :mod:`checks`
judges the results, and :mod:`summary` puts them into the report.
"""
