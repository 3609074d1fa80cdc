"""Which rules would take as a word what has to follow them."""

import pytest
from llguidance.gbnf_to_lark import GrammarParser

from arriero.agent.chat.grammar.gbnf_words import MAX_SAMPLE, EntangledError, word_rules


@pytest.mark.parametrize(
    ("gbnf", "apart"),
    [
        ('root ::= "a" root | x\nx ::= [0-9]+', set()),
        ('root ::= x root | "."\nx ::= [0-9]+', {"x"}),
        ('root ::= x "," root | x\nx ::= [0-9]+', set()),
        ('root ::= x "5" root | "."\nx ::= [0-9]+ ("." [0-9]+)?', {"x"}),
        ('root ::= x "5" root | "."\nx ::= [0-9]{1}', set()),
        ('root ::= x "\\n" root | "."\nx ::= "a" ws\nws ::= [ \\t\\n]*', {"x", "ws"}),
        ('root ::= x "\\x41" root | "."\nx ::= [^a]*', {"x"}),
        ('root ::= x "a" root | "."\nx ::= [^a]*', set()),
        ('root ::= (x root)*\nx ::= "b"? "ab"*', {"x"}),
        ('root ::= (y | root "-")\ny ::= "é"*', set()),
    ],
)
def test_where_a_word_could_go_on_with_what_follows(gbnf: str, apart: set[str]) -> None:
    rules = GrammarParser().parse(gbnf)
    circular = {"root"} if "root" in gbnf.removeprefix("root") else set()
    assert rules.keys() - word_rules(rules) == apart | circular


@pytest.mark.parametrize(
    "gbnf",
    [
        "root ::= [" + "".join(map(chr, range(0x4E00, 0x4E00 + MAX_SAMPLE))) + "]",
        "\n".join(f'r{n} ::= r{n * 7 % 499} "{n}"?' for n in range(499)),
    ],
)
def test_there_is_an_end_to_the_work(gbnf: str) -> None:
    with pytest.raises(EntangledError):
        word_rules(GrammarParser().parse(gbnf))
