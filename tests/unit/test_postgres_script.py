"""The migrations as SQL: what of the settings stands in it."""

from __future__ import annotations

from twinstore.plugins.modules import module_spec
from twinstore_postgres.schema.script import script


def test_the_name_of_a_role_does_not_end_the_comment_that_names_it() -> None:
    text = script(module_spec("tracking"), "x\nDROP TABLE y; --")
    head, _, rest = text.partition("CREATE SCHEMA")
    assert [line for line in head.splitlines() if not line.startswith("--")] == []
    # Behind that it stands in quotes, as the name that it is.
    assert rest.count("DROP TABLE") == rest.count('TO "x\nDROP TABLE y; --"') > 0
