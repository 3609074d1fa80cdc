"""Compiled grammars: cached, bounded, refused with a reason."""

import pytest
from llguidance import LLMatcher

from arriero.agent.engine.grammar.constraint import ConstraintError
from arriero.agent.engine.grammar.grammars import MAX_TEXT, Grammars
from arriero.agent.engine.llama.vocab import grammar_tokens
from tests.agent.saying import demo_vocab


@pytest.fixture
def grammars() -> Grammars:
    return Grammars(grammar_tokens(demo_vocab()), max_cached=2)


def regex(pattern: str) -> str:
    return LLMatcher.grammar_from_regex(pattern)


def test_the_same_is_compiled_once(grammars: Grammars) -> None:
    assert grammars.compile(regex("a+")) is grammars.compile(regex("a+"))
    assert len(grammars) == 1


def test_the_one_unused_for_longest_goes(grammars: Grammars) -> None:
    first = grammars.compile(regex("a"))
    second = grammars.compile(regex("b"))
    assert grammars.compile(regex("a")) is first
    grammars.compile(regex("c"))
    assert len(grammars) == 2
    assert grammars.compile(regex("a")) is first
    assert grammars.compile(regex("b")) is not second


@pytest.mark.parametrize(
    ("grammar", "finding"),
    [
        (regex("(a"), "unclosed group"),
        (LLMatcher.grammar_from_lark("start: nothing"), "nothing"),
        (LLMatcher.grammar_from_json_schema('{"type": "strig"}'), "strig"),
        (" " * (MAX_TEXT + 1), "characters"),
        (regex("(x{1000}){1000}"), "too many"),
    ],
)
def test_what_cannot_be_served_is_left_out(grammars: Grammars, grammar: str, finding: str) -> None:
    with pytest.raises(ConstraintError, match=finding):
        grammars.compile(grammar)
    assert not len(grammars)


def test_a_complaint_needs_no_vocabulary(grammars: Grammars) -> None:
    assert grammars.complaint(regex("a")) is None
    assert "unclosed group" in (grammars.complaint(regex("(a")) or "")


def test_what_is_broken_is_compiled_again(grammars: Grammars) -> None:
    first = grammars.compile(regex("a"))
    first.is_broken = True
    second = grammars.compile(regex("a"))
    assert second is not first
    assert grammars.compile(regex("a")) is second
    assert len(grammars) == 1
