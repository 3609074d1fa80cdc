"""Compiled grammars: cached, bounded, refused with a reason."""

import json
import socket
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, cast

import numpy as np
import pytest
from llguidance import LLMatcher

from arriero.agent.engine.grammar.constraint import ConstraintError
from arriero.agent.engine.grammar.grammars import MAX_TEXT, Ended, Grammars, TooCostlyError
from arriero.agent.engine.llama.vocab import grammar_tokens
from tests.agent.saying import at_once, demo_vocab, fits


def regex(pattern: str) -> str:
    return LLMatcher.grammar_from_regex(pattern)


def lark(source: str) -> str:
    return json.dumps({"grammars": [{"lark_grammar": source}]})


def schema(source: object) -> str:
    return json.dumps({"grammars": [{"json_schema": source}]})


CONJUNCTION = " & ".join(rf"/(.|\n)*a{n}/" for n in range(24))
"""Each part doubles the work, of which no unit is counted before all of it is done."""

COSTLY = {
    "time": lark(f"start: T\nT: {CONJUNCTION}"),
    "time of a schema": schema(
        {"allOf": [{"type": "string", "pattern": f"a{n}b"} for n in range(24)]}
    ),
    "memory": regex("a?" * 32_000),
}


@pytest.fixture
def grammars() -> Grammars:
    return Grammars(grammar_tokens(demo_vocab()), max_cached=2, seconds=0.5)


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


def test_what_takes_too_much_memory_is_not_cached() -> None:
    grammars = Grammars(grammar_tokens(demo_vocab()), max_bytes=1)
    served = grammars.compile(regex("a+"))
    assert len(grammars) == 0
    assert fits(served, "aaa")


@pytest.mark.parametrize(
    ("grammar", "finding"),
    [
        (regex("(a"), "unclosed group"),
        (LLMatcher.grammar_from_lark("start: nothing"), "nothing"),
        (LLMatcher.grammar_from_json_schema('{"type": "strig"}'), "strig"),
        (" " * (MAX_TEXT + 1), "characters"),
        (regex("(x{1000}){1000}"), "too m(any|uch)"),
    ],
)
def test_what_cannot_be_served_is_left_out(grammars: Grammars, grammar: str, finding: str) -> None:
    with pytest.raises(ConstraintError, match=finding):
        grammars.compile(grammar)
    assert not len(grammars)


def test_what_is_wrong_with_a_grammar(grammars: Grammars) -> None:
    with grammars.judging() as complaint:
        assert complaint(regex("a")) is None
        assert "unclosed group" in (complaint(regex("(a")) or "")


def test_what_is_broken_is_compiled_again(grammars: Grammars) -> None:
    first = grammars.compile(regex("a"))
    cast("Any", first)._worker.stop()
    second = grammars.compile(regex("a"))
    assert second is not first
    assert grammars.compile(regex("a")) is second
    assert len(grammars) == 1


# ---- workers


@pytest.mark.parametrize("grammar", COSTLY.values(), ids=COSTLY)
def test_what_costs_too_much_ends_its_worker_alone(grammars: Grammars, grammar: str) -> None:
    served = grammars.compile(regex("a+"))
    with pytest.raises(TooCostlyError, match="simplify it"):
        grammars.compile(grammar)
    assert fits(served, "aaa")
    assert fits(grammars.compile(regex("b+")), "bb")


def test_the_deepest_grammar_fits_on_the_stack(grammars: Grammars) -> None:
    rules = "\n".join(f'R{n}: R{n + 1} "a"' for n in range(5000))
    grammars.compile(lark(f'start: R0\n{rules}\nR5000: "b"'))


def test_a_token_that_costs_too_much_ends_its_sequence_alone(grammars: Grammars) -> None:
    """The cost begins behind the first tokens, which are all that is tried before."""
    served = grammars.compile(regex("a+"))
    hidden = grammars.compile(lark(f"start: P {'x? ' * 4000}\nP: /q{{30,40}}/\nx: /[ab]/"))
    state = hidden.begin(at_once)
    (token,) = demo_vocab().tokenize("q", add_special=False, parse_special=False)
    for _ in range(40):
        state.accept(token)
        state.restrict(np.zeros(demo_vocab().size, np.float32))
    assert state.failure is not None
    assert fits(served, "aaa")


def test_a_sequence_whose_tokens_cost_much_one_after_the_other_ends(grammars: Grammars) -> None:
    """Each of them is within the bounds of one."""
    costly = grammars.compile(lark(f"start: P {'x? ' * 900}\nP: /q{{9,999}}/\nx: /[ab]/"))
    state = costly.begin(at_once)
    (token,) = demo_vocab().tokenize("q", add_special=False, parse_special=False)
    while state.failure is None:
        state.accept(token)
        state.restrict(np.zeros(demo_vocab().size, np.float32))
    assert "of computing" in (state.failure or "")


def test_nothing_is_compiled_for_a_request_that_has_ended() -> None:
    grammars = Grammars(grammar_tokens(demo_vocab()), seconds=60.0)
    ended: Ended = Future()
    with ThreadPoolExecutor(1) as threads:
        compiled = threads.submit(grammars.compile, lark(f"start: T\nT: {CONJUNCTION}"), ended)
        assert not wait([compiled], 0.1).done
        ended.set_result(None)
        with pytest.raises(TooCostlyError):
            compiled.result(10.0)
    with pytest.raises(TooCostlyError):
        grammars.compile(regex("a"), ended)
    assert not len(grammars)


def test_a_worker_that_ended_before_its_turn_is_passed_over(grammars: Grammars) -> None:
    grammars.compile(regex("a"))
    (spare,) = cast("Any", grammars)._process._spares
    spare.shutdown(socket.SHUT_RDWR)
    assert fits(grammars.compile(regex("b")), "b")


def test_the_process_of_workers_starts_again(grammars: Grammars) -> None:
    grammars.compile(regex("a"))
    cast("Any", grammars)._process._process.kill()
    cast("Any", grammars)._process._process.wait()
    assert fits(grammars.compile(regex("b")), "b")
