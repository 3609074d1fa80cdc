import json
from typing import Any

import pytest

from arriero.balancer.api.vllm.tokens import (
    TokenCall,
    parse_detokenize,
    parse_tokenize,
    text_answer,
    tokenizer_answer,
    tokenizer_call,
    tokens_answer,
)
from arriero.balancer.fleet.view import ModelView
from arriero.shared.errors import InvalidRequest
from arriero.shared.queries import (
    DescribeTokenizer,
    Detokenize,
    Detokenized,
    Tokenize,
    Tokenized,
    TokenizerDescription,
)
from arriero.shared.reports.model_info import ModelInfo, Task


def model(name: str, *tasks: Task) -> ModelView:
    info = ModelInfo(
        name=name, architecture="llama", parameters=1, size_bytes=1, context_size=64, tasks=tasks
    )
    return ModelView(info=info, status="loaded")


CHAT = model("chat", "generate", "embed")


def tokenize(**body: Any) -> TokenCall:
    return parse_tokenize(json.dumps(body).encode())


def detokenize(**body: Any) -> TokenCall:
    return parse_detokenize(json.dumps(body).encode())


@pytest.mark.parametrize(("given", "adds"), [({}, True), ({"add_special_tokens": False}, False)])
def test_control_tokens_are_read_in_a_prompt(given: dict[str, Any], adds: bool) -> None:
    call = tokenize(prompt="</s>", model="m", **given)
    assert call == TokenCall(Tokenize(text="</s>", add_special=adds, parse_special=True), "m")


@pytest.mark.parametrize(
    ("given", "adds", "parses"),
    [
        ({}, False, True),
        ({"add_special": True, "parse_special": False, "with_pieces": False}, True, False),
    ],
)
def test_a_content_is_read_as_llama_server_does(
    given: dict[str, Any], adds: bool, parses: bool
) -> None:
    call = tokenize(content="a", **given)
    assert call.query == Tokenize(text="a", add_special=adds, parse_special=parses)
    with pytest.raises(InvalidRequest, match="`prompt` is missing"):
        tokenize()


def test_the_query_is_for_the_model_that_was_found() -> None:
    request = detokenize(tokens=[1, 2]).query_request(CHAT)
    assert (request.kind, request.model) == ("text", "chat")
    assert request.parts == (Detokenize(tokens=(1, 2)),)
    assert tokenizer_call(None).query_request(CHAT).parts == (DescribeTokenizer(),)


def test_answers() -> None:
    assert tokens_answer(CHAT, [Tokenized(tokens=(3, 4))]) == {
        "count": 2,
        "max_model_len": 64,
        "tokens": (3, 4),
        "token_strs": None,
    }
    assert text_answer(CHAT, [Detokenized(text="x")]) == {"prompt": "x", "content": "x"}
    assert tokenizer_answer(CHAT, [TokenizerDescription(eos_text="</s>")]) == {
        "model": "chat",
        "bos_token": None,
        "eos_token": "</s>",
        "chat_template": None,
    }


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "prompt"),
        ({"prompt": 1}, "prompt"),
        ({"prompt": "x" * 1_048_577}, "prompt"),
        ({"messages": []}, "prompt"),
        ({"messages": [{"role": "user", "content": "x"}]}, "messages"),
        ({"prompt": "x", "return_token_strs": True}, "return_token_strs"),
    ],
)
def test_what_is_wrong_with_a_text_is_named(body: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        tokenize(**body)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("tokens", "field"), [([-1], "tokens[0]"), ("a", "tokens"), ([0] * 65_537, "tokens")]
)
def test_what_is_wrong_with_tokens_is_named(tokens: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        detokenize(tokens=tokens)
    assert caught.value.field == field
