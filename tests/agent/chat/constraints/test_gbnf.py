"""Grammars as llama.cpp writes them, in llguidance's notation."""

import pytest

from arriero.agent.chat.constraints.gbnf import MAX_DEPTH, MAX_RULES, GbnfError, lark_of
from arriero.agent.chat.constraints.lark import Lark
from tests.agent.saying import demo_grammars, fits, say

ARITHMETIC = r"""
# from llama.cpp's own examples
root   ::= (expr "=" ws term "\n")+
expr   ::= term ([-+*/] term)*
term   ::= ident | num | "(" ws expr ")" ws
ident  ::= [a-z] [a-z0-9_]* ws
num    ::= [0-9]+ ws
ws     ::= [ \t\n]*
"""
ANY_JSON = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}" ws
array  ::= "[" ws (value ("," ws value)*)? "]" ws
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}))* "\"" ws
number ::= "-"? ([0-9] | [1-9] [0-9]{0,15}) ("." [0-9]+)? ws
ws     ::= | " " | "\n" [ \t]{0,20}
"""


def grammar(gbnf: str) -> str:
    lark = Lark({})
    return lark.grammar(lark.lark(lark_of(gbnf)))


@pytest.mark.parametrize(
    ("gbnf", "good", "bad"),
    [
        ('root ::= "yes" | "no"', ["yes", "no"], ["", "maybe", "yesno"]),
        ('root ::= [a-z]* "abc"', ["abc", "xyzabc", "abcabc"], ["ab", "abcd"]),
        ('root ::= "(" root ")" | num\nnum ::= [0-9]+', ["7", "((12))"], ["(1", "()"]),
        ("root ::= start\nstart ::= Item-two{2}\nItem-two ::= [^0-9]", ["ab"], ["a", "a1"]),
        ('root ::= "a/b" [/"] "\\x41" ("c" | )', ["a/b/A", 'a/b"Ac'], ["a/bA"]),
        (ARITHMETIC, ["x=1\n", "(a +2)*b = 3\n", "x=1 \n\n"], ["x\n", "=1\n", "x=1"]),
        (ANY_JSON, ['{"a": [1, -2.5, {}], "b\\n": null}', "{}\n"], ["[]", '{"a": 01}', "{"]),
        ('root ::= word word\nword ::= x | "(" word ")"\nx ::= [a-z]+', ["ab", "(a)bc"], ["a"]),
    ],
)
def test_what_fits_and_what_does_not(gbnf: str, good: list[str], bad: list[str]) -> None:
    constraint = demo_grammars().compile(grammar(gbnf))
    assert [text for text in good if not fits(constraint, text)] == []
    assert [text for text in bad if fits(constraint, text)] == []


def test_what_is_said_under_one_fits() -> None:
    constraint = demo_grammars().compile(grammar('root ::= ("- " [a-z ]{1,9} "\\n"){1,3}'))
    for seed in range(5):
        said = say(constraint, seed)
        assert said.is_whole
        assert all(line.startswith("- ") for line in said.text.splitlines())


@pytest.mark.parametrize(
    ("gbnf", "finding"),
    [
        ('a ::= "x"', "no rule `root`"),
        ("root ::= item", "no rule `item`"),
        ('root ::= "abc', "line 1"),
        ('root ::= "a"\nroot2 : "b"', "line 2"),
        ('root ::= "\\', "middle of a rule"),
        ("root ::= " + "(" * (MAX_DEPTH + 1), "nested parentheses"),
        ("\n".join(f'r{n} ::= "x"' for n in range(MAX_RULES + 1)), "rules"),
    ],
)
def test_what_is_wrong_is_said(gbnf: str, finding: str) -> None:
    with pytest.raises(GbnfError, match=finding):
        lark_of(gbnf)
