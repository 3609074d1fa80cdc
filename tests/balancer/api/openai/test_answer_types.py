"""What the OpenAI API answers is as its types say; so are chunks that are written by hand."""

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json

from arriero.balancer.api.common.accumulator import Accumulator
from arriero.balancer.api.openai import answer_types
from arriero.balancer.api.openai.completions.answers import (
    ChunkWriter,
    Head,
    error_chunk,
    whole_answer,
)
from arriero.balancer.api.openai.completions.shapes import Chat, Completion, Shape
from arriero.balancer.api.openai.queries.embeddings import parse_embeddings
from arriero.balancer.api.openai.queries.rerank import parse_rerank
from arriero.shared.errors import AgentLost
from arriero.shared.inference import (
    Event,
    LogProb,
    Token,
    TokenLogProbs,
    ToolCall,
    ToolCallStarted,
)
from arriero.shared.queries import Embedded, Ranked, Score, Vector
from tests.balancer.api.declared import check
from tests.balancer.api.fake_runtime import done

HEAD = Head(id="x-1", created=5, model="m")
LIKELY = LogProb(5, b"\xe2", -0.5)
LOG_PROBS = (TokenLogProbs(LogProb(1, b"a", -1.0), (LIKELY,)),)

TOKENS = st.builds(
    Token,
    st.text(max_size=3),
    st.sampled_from(["content", "reasoning"]),
    log_probs=st.sampled_from([(), LOG_PROBS]),
)
CALL: list[Event] = [
    ToolCallStarted("c", "f"),
    Token("{}", "tool_call"),
    ToolCall("c", "f", "{}"),
]
PIECES = st.lists(TOKENS.map(lambda token: [token]) | st.just(CALL), max_size=5)
LOGGED = st.sampled_from([(), LOG_PROBS])
TEXTS = st.lists(st.builds(Token, st.text(max_size=3), st.just("content"), st.just(()), LOGGED))


def chunks(shape: Shape, events: list[Event]) -> list[Any]:
    writer = ChunkWriter(shape, HEAD, num_choices=1, include_usage=True)
    data = b"".join(writer.render(0, event) for event in events) + writer.tail()
    lines = data.removesuffix(b"data: [DONE]\n\n").split(b"\n\n")
    return [from_json(line.removeprefix(b"data: ")) for line in lines if line]


def whole(shape: Shape, events: list[Event]) -> dict[str, object]:
    accumulator = Accumulator()
    for event in events:
        accumulator.add(event)
    return whole_answer(shape, HEAD, [accumulator], 1)


@given(PIECES, st.sampled_from(["stop", "length", "tool_calls", "cancelled"]), st.booleans())
def test_chat(pieces: list[list[Event]], reason: str, has_log_probs: bool) -> None:
    events = [*(event for piece in pieces for event in piece), done(reason)]
    for chunk in chunks(Chat(has_log_probs=has_log_probs), events):
        check(answer_types.ChatChunk, chunk)
    check(answer_types.ChatCompletion, whole(Chat(has_log_probs=has_log_probs), events))


@given(TEXTS, st.sampled_from(["stop", "length", "cancelled"]), st.booleans())
def test_completions(tokens: list[Event], reason: str, has_log_probs: bool) -> None:
    events = [*tokens, done(reason)]
    for chunk in chunks(Completion(has_log_probs=has_log_probs), events):
        check(answer_types.CompletionChunk, chunk)
    check(answer_types.Completion, whole(Completion(has_log_probs=has_log_probs), events))


def test_a_chunk_with_more_is_another() -> None:
    (*_, last) = chunks(Chat(), [done("stop")])
    with pytest.raises(jsonschema.ValidationError):
        check(answer_types.ChatChunk, last | {"more": 1})


def test_the_chunk_of_an_error() -> None:
    line = error_chunk(AgentLost("gone")).removeprefix(b"data: ")
    check(answer_types.OpenAIError, from_json(line))


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_embeddings(encoding: str) -> None:
    call = parse_embeddings(b'{"input": ["a"], "encoding_format": "%b"}' % encoding.encode())
    answer = call.answer("m", [Embedded(vectors=(Vector(vector="AACAPw==", num_tokens=2),))])
    check(answer_types.Embeddings, {**answer, "data": list(answer["data"])})


@pytest.mark.parametrize("told", [b"true", b"false"])
def test_rankings(told: bytes) -> None:
    body = b'{"query": "q", "documents": ["a"], "return_documents": %b}' % told
    answer = parse_rerank(body).answer("1", "m", [Ranked(scores=(Score(score=0.5, num_tokens=3),))])
    check(answer_types.Ranking, answer)
