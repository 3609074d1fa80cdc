import base64
import json
from array import array
from dataclasses import replace
from typing import Any

import pytest

from arriero.agent.upstream.protocol.failures import UpstreamFault
from arriero.agent.upstream.protocol.queries import Call, call_of, result_of
from arriero.shared.errors import NotSupported
from arriero.shared.inference import ChatMessage, GenerateRequest
from arriero.shared.queries import (
    Counted,
    CountTokens,
    DescribeTokenizer,
    Detokenize,
    Detokenized,
    Embed,
    Embedded,
    Query,
    Rank,
    Tokenize,
    Tokenized,
)
from tests.agent.upstream.protocol.servers import ARRIERO_SERVER, LLAMA, OPENAI, VLLM_SERVER

HI = CountTokens(request=GenerateRequest(messages=(ChatMessage(role="user", content="hi"),)))


def test_embeddings() -> None:
    call = call_of(Embed(inputs=("a", (1, 2))), OPENAI)
    body = {"model": "m", "input": ["a", [1, 2]], "encoding_format": "float"}
    assert call == Call("api", "/embeddings", body)


def vectors(query: Embed, *embeddings: list[float], num_tokens: int = 5) -> list[list[float]]:
    data = [{"index": place, "embedding": each} for place, each in enumerate(embeddings)]
    answer = {"data": data[::-1], "usage": {"prompt_tokens": num_tokens}}
    result = result_of(query, json.dumps(answer).encode())
    assert isinstance(result, Embedded)
    assert sum(each.num_tokens for each in result.vectors) == num_tokens
    return [list(array("f", base64.b64decode(each.vector))) for each in result.vectors]


def test_vectors_come_in_order_normalised_and_cut() -> None:
    two = Embed(inputs=("a", "b"))
    assert vectors(two, [3.0, 4.0], [0.0, 2.0]) == [
        pytest.approx([0.6, 0.8]),
        pytest.approx([0.0, 1.0]),
    ]
    cut = Embed(inputs=("a",), dimensions=1, normalize="rms")
    assert vectors(cut, [3.0, 4.0]) == [pytest.approx([1.0])]
    assert vectors(Embed(inputs=("a",)), [0.0, 0.0]) == [[0.0, 0.0]]


def test_tokens_in_each_servers_words() -> None:
    tokenize = Tokenize(text="a", add_special=True)
    asked = {"content": "a", "add_special": True, "parse_special": False}
    assert call_of(tokenize, LLAMA) == Call("root", "/tokenize", asked)
    asked = {"model": "m", "prompt": "a", "add_special_tokens": True}
    assert call_of(tokenize, VLLM_SERVER) == Call("root", "/tokenize", asked)
    assert call_of(Detokenize(tokens=(1,)), LLAMA).body == {"tokens": [1]}
    assert call_of(Detokenize(tokens=(1,)), VLLM_SERVER).body == {"tokens": [1], "model": "m"}
    messages = [{"role": "user", "content": "hi"}]
    assert call_of(HI, VLLM_SERVER) == Call(
        "root", "/tokenize", {"model": "m", "messages": messages}
    )
    assert call_of(HI, ARRIERO_SERVER).path == "/api/v1/count_tokens"


@pytest.mark.parametrize(
    ("query", "answer", "result"),
    [
        (Tokenize(text="a"), {"tokens": [1, 2], "count": 2}, Tokenized(tokens=(1, 2))),
        (Detokenize(tokens=(1,)), {"prompt": "a"}, Detokenized(text="a")),
        (Detokenize(tokens=(1,)), {"content": "a"}, Detokenized(text="a")),
        (HI, {"count": 7, "tokens": []}, Counted(num_tokens=7)),
        (HI, {"num_tokens": 7}, Counted(num_tokens=7)),
    ],
)
def test_results(query: Query, answer: dict[str, Any], result: object) -> None:
    assert result_of(query, json.dumps(answer).encode()) == result


@pytest.mark.parametrize("query", [Embed(inputs=("a",)), Tokenize(text="a"), HI])
@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"data": [], "tokens": 5, "count": null}'])
def test_an_answer_of_another_shape(query: Query, body: bytes) -> None:
    with pytest.raises(UpstreamFault, match="has another shape"):
        result_of(query, body)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (Rank(query="a", documents=("b",)), "`rank`"),
        (DescribeTokenizer(), "`describe_tokenizer`"),
        (HI, "`count_tokens`"),
        (Embed(inputs=("a",), pooling="mean"), "`pooling`"),
        (Embed(inputs=("a",), normalize="none"), "`normalize`"),
    ],
)
def test_what_it_cannot_answer_is_refused_by_name(query: Query, words: str) -> None:
    with pytest.raises(NotSupported, match=words):
        call_of(query, OPENAI)


def test_texts_only() -> None:
    server = replace(OPENAI, abilities=frozenset())
    with pytest.raises(NotSupported, match="accepts texts only"):
        call_of(Embed(inputs=((1, 2),)), server)
