"""Which notation a grammar is in that is only a text."""

import pytest

from arriero.shared.inference.grammars import GbnfGrammar, LarkGrammar, text_grammar


@pytest.mark.parametrize("text", ['root ::= "a"', 'root::="a"', '# a: b\nroot ::= "a" | "b"'])
def test_only_gbnf_has_its_sign(text: str) -> None:
    assert text_grammar(text) == GbnfGrammar(type="gbnf", grammar=text)


@pytest.mark.parametrize(
    "text", ['start: "a"', "%llguidance {}\nstart: /::=/", '\n%llguidance {}\nstart: "::="']
)
def test_all_else_is_lark(text: str) -> None:
    assert text_grammar(text) == LarkGrammar(type="lark", grammar=text)
