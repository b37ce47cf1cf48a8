"""The check of words finds each of them in prose, and none in code."""

from __future__ import annotations

import pytest

from tests.support.words import in_markdown, in_source


@pytest.mark.parametrize("word", ["tell", "Tells", "told", "whoever", "of its own", "once more", "somebody"])
def test_a_word_is_found_in_prose_with_its_line(word: str) -> None:
    assert list(in_markdown(f"One line.\nAnd {word} here.\n")) == [(2, word)]
    source = f'"""Text."""\n\n\ndef f():\n    """A {word} there."""\n    raise ValueError("no {word} here")\n'
    assert list(in_source(source, messages=False)) == [(5, word)]
    assert list(in_source(source, messages=True)) == [(5, word), (6, word)]


def test_code_may_use_it() -> None:
    assert list(in_markdown("Of `told` and\n```python\ntold = 1\n```\n")) == []
    assert list(in_source("told = {'beside': 1}  # told\n", messages=True)) == []
    assert list(in_markdown("```\n```\nbeside\n")) == [(3, "beside")]
    section = '"""Text of ``tell``.\n\n    Args:\n        beside: a name.\n"""\n'
    assert list(in_source(section, messages=False)) == []
