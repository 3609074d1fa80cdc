import pytest

from arriero.agent.chat.grammar.schema import Schema, step


@pytest.mark.parametrize(("name", "way"), [("a", ".a"), ("$defs", ".$defs"), ("a b", '["a b"]')])
def test_a_step_says_where_a_member_is(name: str, way: str) -> None:
    assert step(name) == way


def test_schemas_are_strict_unless_told_otherwise() -> None:
    assert not Schema("tools", {}).is_lenient
