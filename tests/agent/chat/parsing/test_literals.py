import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.chat.parsing.literals import as_json, as_text


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("12", "12"),
        (' {"a":  1} ', '{"a":  1}'),
        ("['a<b', None, True]", '["a<b", null, true]'),
        ("(1, 2)", "[1, 2]"),
        ("None", "null"),
        ("true", "true"),
        ("Oslo", '"Oslo"'),
        (" Oslo ", '" Oslo "'),
        ("", '""'),
        ("NaN", '"NaN"'),
        ("[1e999, 'a']", "\"[1e999, 'a']\""),
        ("'\\d'", '"\\\\d"'),
        ("{1, 2}", '"{1, 2}"'),
        ("b'x'", "\"b'x'\""),
        ("f(1)", '"f(1)"'),
        ("'\\ud800'", '"?"'),
    ],
)
def test_values(written: str, value: str) -> None:
    assert as_json(written) == value


@given(st.text())
def test_whatever_is_written_is_json(written: str) -> None:
    json.loads(as_json(written))
    assert json.loads(as_text(written)) == written
