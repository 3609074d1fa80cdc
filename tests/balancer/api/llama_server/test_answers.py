"""Answers in llama-server's format."""

import json
from typing import Any

import pytest

from arriero.balancer.api.llama_server.answers import CompletionAnswer, LlamaAnswer, LlamaChunk
from arriero.shared.errors import AgentLost
from arriero.shared.inference import (
    Begun,
    Done,
    Event,
    Failed,
    GenerateRequest,
    LogProb,
    Reading,
    Token,
    TokenLogProbs,
    Usage,
    Waiting,
)
from tests.balancer.api.declared import check
from tests.balancer.api.fake_runtime import TIMINGS

REQUEST = GenerateRequest(prompt="x", temperature=0.5, max_tokens=8)
LOG_PROBS = (TokenLogProbs(LogProb(7, b"a", -0.5), (LogProb(8, b"b", -1.0),)),)
TOKENS = [Token("one ", tokens=(5,)), Token("two\n", tokens=(6, 7))]


def end(reason: Any = "stop", stop_string: str | None = None) -> Done:
    usage = Usage(prompt_tokens=4, cached_tokens=3, completion_tokens=3)
    return Done(reason, usage, TIMINGS, "agent-1", stop_string)


def answer(*, has_tokens: bool = False, tells_progress: bool = False) -> CompletionAnswer:
    return CompletionAnswer(REQUEST, "demo", has_tokens=has_tokens, tells_progress=tells_progress)


def chunks(*events: Event) -> list[Any]:
    writing = answer()
    data = b"".join(writing.render(event) for event in events)
    return [json.loads(each.removeprefix(b"data: ")) for each in data.split(b"\n\n") if each]


def test_a_stream_says_how_far_it_is_and_ends_without_a_mark() -> None:
    first, second, last = chunks(Begun(4, 3), *TOKENS, end())
    for chunk in (first, second):
        check(LlamaChunk, chunk)
    check(LlamaAnswer, last)
    assert (first["content"], first["tokens"], first["stop"]) == ("one ", [5], False)
    assert (second["tokens_predicted"], second["tokens_evaluated"]) == (3, 4)
    assert (last["content"], last["stop"], last["has_new_line"]) == ("", True, True)
    assert last["generation_settings"]["temperature"] == 0.5
    assert (last["tokens_cached"], last["timings"]["prompt_n"]) == (3, 1)


@pytest.mark.parametrize(("has_tokens", "tokens"), [(False, []), (True, [5, 6, 7])])
def test_in_one_piece(has_tokens: bool, tokens: list[int]) -> None:
    gathering = answer(has_tokens=has_tokens)
    for event in (*TOKENS, end()):
        gathering.take(event)
    whole = gathering.whole()
    check(LlamaAnswer, whole)
    assert (whole["content"], whole["tokens"]) == ("one two\n", tokens)
    assert whole["model"] == "demo"


@pytest.mark.parametrize(
    ("done", "kind", "word"),
    [
        (end(), "eos", ""),
        (end("length"), "limit", ""),
        (end("stop", "END"), "word", "END"),
        (end("cancelled"), "none", ""),
    ],
)
def test_why_it_ended(done: Done, kind: str, word: str) -> None:
    [last] = chunks(done)
    assert (last["stop_type"], last["stopping_word"]) == (kind, word)


def test_how_likely_its_tokens_were() -> None:
    gathering = answer()
    token = Token("a", tokens=(7,), log_probs=LOG_PROBS)
    [chunk] = chunks(token)
    for event in (token, end()):
        gathering.take(event)
    expected = [
        {
            "id": 7,
            "token": "a",
            "bytes": [97],
            "logprob": -0.5,
            "top_logprobs": [{"id": 8, "token": "b", "bytes": [98], "logprob": -1.0}],
        }
    ]
    assert chunk["completion_probabilities"] == expected
    assert gathering.whole()["completion_probabilities"] == expected


def test_who_waits_is_told_in_a_comment_and_errors_as_openais() -> None:
    writing = answer()
    assert writing.render(Waiting(2, "slot")).startswith(b": waiting position=2")
    assert writing.render(Reading(5, 9)) == b": reading 5 of 9 tokens\n\n"
    assert b'"agent_lost"' in writing.render(Failed(AgentLost("gone")))


def test_who_asks_for_it_gets_the_progress_of_the_prompt() -> None:
    rendered = answer(tells_progress=True).render(Reading(5, 9, 2, 0.0304))
    progress = json.loads(rendered.removeprefix(b"data: "))["prompt_progress"]
    assert progress == {"total": 9, "cache": 2, "processed": 5, "time_ms": 30}
