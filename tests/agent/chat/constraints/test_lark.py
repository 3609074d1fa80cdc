"""Grammars in llguidance's notation, and how much work one may be."""

import pytest

from arriero.agent.chat.constraints.lark import MAX_SCHEMAS, Lark, TooMuchWorkError, Work
from arriero.agent.engine.grammar.constraint import Constraint
from arriero.agent.engine.grammar.grammars import MAX_TEXT
from tests.agent.saying import demo_grammars, demo_vocab, fits, say


def test_all_of_it_may_be_done_and_no_more() -> None:
    work = Work(10)
    work.spend(4)
    work.spend(6)
    with pytest.raises(TooMuchWorkError):
        work.spend(1)


def test_schemas_are_as_long_as_their_grammar_may_be() -> None:
    assert MAX_SCHEMAS == MAX_TEXT


(START,) = demo_vocab().tokenize("<|im_start|>", add_special=False, parse_special=True)


def compiled(lark: Lark, start: str) -> Constraint:
    return demo_grammars().compile(lark.grammar(start))


def test_literals_hold_text_and_control_tokens() -> None:
    lark = Lark({"<|im_start|>": START})
    constraint = compiled(lark, lark.literal('say "a\\b"\n<|im_start|>é<|im_start|>'))
    assert fits(constraint, 'say "a\\b"\n<|im_start|>é<|im_start|>')
    assert not fits(constraint, 'say "a\\b"\n<|im_start|>é')


def test_a_literal_may_have_any_character() -> None:
    lark = Lark({})
    characters = "".join(chr(code) for code in (*range(0x300), 0x2028, 0xFEFF, 0xFFFD, 0x10FFFF))
    assert fits(compiled(lark, lark.literal(characters)), characters)


def test_a_literal_without_control_tokens_is_text() -> None:
    lark = Lark({})
    assert not fits(compiled(lark, lark.literal("<|im_start|>")), "<|im_start|>")
    assert fits(compiled(lark, lark.literal("<tool_call>")), "<tool_call>")


@pytest.mark.parametrize("marker", ["</think>", "<|im_start|>"])
def test_up_to_the_first_marker(marker: str) -> None:
    lark = Lark({"<|im_start|>": START})
    constraint = compiled(lark, f"{lark.up_to(marker)} {lark.literal('42')}")
    assert fits(constraint, f"{{}} what </thin>\n {marker}42")
    assert fits(constraint, f"{marker}42")
    assert not fits(constraint, f"so {marker}41")
    assert not fits(constraint, f"so {marker} or so {marker}42")
    assert not fits(constraint, "42")


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("[a-c]{2}|x/y", ["ab", "x/y"], ["a", "abc"]),
        (r"\d+\.\d{2}", ["3.14", "12.00"], ["3.1", ".14"]),
        ("a\nb", ["a\nb"], ["ab"]),
        ("(?i)yes", ["YES", "yes"], ["no"]),
    ],
)
def test_a_regex_matches_as_a_whole(pattern: str, good: list[str], bad: list[str]) -> None:
    lark = Lark({})
    constraint = compiled(lark, lark.regex(pattern))
    assert [text for text in good if not fits(constraint, text)] == []
    assert [text for text in bad if fits(constraint, text)] == []


def test_white_space_in_json_comes_to_an_end() -> None:
    lark = Lark({})
    constraint = compiled(lark, lark.json({"type": "object", "properties": {"a": {}}}))
    assert fits(constraint, '{"a": [1, 2]}')
    assert fits(constraint, '{\n    "a": {\n        "b": null\n    }\n}')
    assert not fits(constraint, '{"a":  1}')
    assert not fits(constraint, '{\n\n"a": 1}')


def test_the_options_are_ours() -> None:
    schema = {"type": "integer", "x-guidance": {"lenient": True, "whitespace_flexible": False}}
    lark = Lark({})
    assert fits(compiled(lark, f"{lark.json({'type': 'array', 'items': schema})}"), "[1, 2]")


def test_lenient_means_as_far_as_it_can_be_enforced() -> None:
    lark = Lark({})
    schema = {"type": "integer", "minimum": 3, "not": {"const": 4}}
    constraint = compiled(lark, lark.json(schema, is_lenient=True))
    assert fits(constraint, "4")
    assert not fits(constraint, "2")
    assert say(constraint, seed=1).is_whole


def test_texts_end_where_a_marker_comes_and_hold_no_other() -> None:
    lark = Lark({"<|im_start|>": START})
    constraint = compiled(lark, lark.text(without=("<a>", "<b>"), begins_not="<c>", end="<a>"))
    for good in ("x<a>", "<a>", "x<c><a>"):
        assert fits(constraint, good)
    for bad in ("x", "x<b><a>", "<c><a>", "\n <c><a>", "x<a>x<a>"):
        assert not fits(constraint, bad)


def test_a_texts_end_may_have_control_tokens() -> None:
    lark = Lark({"<|im_start|>": START})
    constraint = compiled(lark, lark.text(like=("[a<]*",), end="</<|im_start|>>"))
    assert fits(constraint, "aa</<|im_start|>>")
    assert not fits(constraint, "aa<|im_start|>>")
    assert not fits(constraint, "ab</<|im_start|>>")
    assert lark.has_control("a<|im_start|>")
    assert not lark.has_control("a")


def test_signs_stand_for_others() -> None:
    lark = Lark({})
    constraint = compiled(lark, lark.spelled("<NAME:NUMBER>↵;", NAME="NUMBER"))
    for good in ("<NUMBER:12>;", "<NUMBER:0>\n;", "<NUMBER:0>\n\n;"):
        assert fits(constraint, good)
    for bad in ("<NAME:12>;", "<NUMBER:>;", "<NUMBER:0>\n\n\n;"):
        assert not fits(constraint, bad)


def test_rules_may_lead_back_to_themselves() -> None:
    lark = Lark({})
    name = lark.name()
    lark.define(name, f'"(" {name}? ")"')
    assert fits(compiled(lark, name), "((()))")
    assert not fits(compiled(lark, name), "(()")
