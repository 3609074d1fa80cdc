"""The requests that lm-eval's remote tokenizer sends, and their errors."""

from typing import Any

import pytest
from aiohttp.test_utils import TestClient

from arriero.balancer.fleet.queries.query import QueryRequest
from arriero.shared.queries import (
    DescribeTokenizer,
    Detokenize,
    Detokenized,
    Result,
    Tokenize,
    Tokenized,
    TokenizerDescription,
)
from tests.balancer.api.fake_runtime import FakeFleetRuntime

TEMPLATE = "{{ messages[0].content }}"


def answers(query_request: QueryRequest) -> tuple[Result, ...]:
    assert query_request.model == "m"
    match query_request.parts:
        case (Tokenize(add_special=False, parse_special=True),):
            return (Tokenized(tokens=(5, 6)),)
        case (Detokenize(tokens=(5, 6)),):
            return (Detokenized(text="ab"),)
        case (DescribeTokenizer(),):
            return (TokenizerDescription(eos_text="</s>", chat_template=TEMPLATE),)
    raise AssertionError(query_request)


async def test_what_a_remote_tokenizer_asks(runtime: FakeFleetRuntime, client: TestClient) -> None:
    runtime.model_names, runtime.answers = {"m"}, answers
    response = await client.get("/tokenizer_info")
    info = await response.json()
    assert (info["bos_token"], info["eos_token"]) == (None, "</s>")
    assert info["chat_template"] == TEMPLATE
    sent: dict[str, Any] = {"prompt": info["eos_token"], "add_special_tokens": False}
    tokens = (await (await client.post("/tokenize", json=sent)).json())["tokens"]
    assert tokens == [5, 6]
    response = await client.post("/detokenize", json={"tokens": tokens})
    assert await response.json() == {"prompt": "ab", "content": "ab"}


@pytest.mark.parametrize(("query", "status"), [("", 400), ("?model=none", 404), ("?model=m", 200)])
async def test_one_of_several_models_is_named(
    runtime: FakeFleetRuntime, client: TestClient, query: str, status: int
) -> None:
    runtime.model_names, runtime.answers = {"m", "n"}, answers
    response = await client.get(f"/tokenizer_info{query}")
    assert response.status == status
    if status != 200:
        assert (await response.json())["error"]["param"] == "model"


async def test_errors_have_openais_shape(client: TestClient) -> None:
    response = await client.post("/tokenize", json={"prompt": 7})
    error = (await response.json())["error"]
    assert (response.status, error["type"]) == (400, "invalid_request_error")
    assert error["param"] == "prompt"


async def test_who_answers_and_whether_somebody_does(client: TestClient) -> None:
    response = await client.get("/version")
    assert (await response.json())["version"]
    for method in ("GET", "POST"):
        assert (await client.request(method, "/ping")).status == 200
