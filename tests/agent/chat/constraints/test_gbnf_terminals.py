"""Which rules would take, as terminals, the text that has to follow them."""

import pytest
from llguidance.gbnf_to_lark import GrammarParser

from arriero.agent.chat.constraints.gbnf_terminals import (
    MAX_SAMPLE,
    TooComplexError,
    terminal_rules,
)


@pytest.mark.parametrize(
    ("gbnf", "excluded"),
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
def test_a_rule_that_could_take_the_text_after_it_is_no_terminal(
    gbnf: str, excluded: set[str]
) -> None:
    rules = GrammarParser().parse(gbnf)
    circular = {"root"} if "root" in gbnf.removeprefix("root") else set()
    assert rules.keys() - terminal_rules(rules) == excluded | circular


@pytest.mark.parametrize(
    "gbnf",
    [
        "root ::= [" + "".join(map(chr, range(0x4E00, 0x4E00 + MAX_SAMPLE))) + "]",
        "\n".join(f'r{n} ::= r{n * 7 % 499} "{n}"?' for n in range(499)),
    ],
)
def test_there_is_an_end_to_the_work(gbnf: str) -> None:
    with pytest.raises(TooComplexError):
        terminal_rules(GrammarParser().parse(gbnf))
