import pytest

from arriero.agent.upstream.protocol.failures import (
    MAX_MESSAGE,
    UpstreamRefusal,
    error_of,
    loss_of,
    message_of,
    words_of,
)
from arriero.shared.errors import RequestError


@pytest.mark.parametrize(
    "body",
    [
        b'{"error": {"message": "no\\nsuch thing", "code": 400}}',
        b'{"object": "error", "message": "no such thing"}',
        b'{"detail": "no such thing"}',
        b'{"detail": [{"loc": ["body"], "msg": "no such thing"}]}',
        b'{"error": "no such thing"}',
        b"no such  thing",
        b'[{"error": {"message": "no such thing"}}]',
    ],
)
def test_every_servers_way_to_say_it(body: bytes) -> None:
    assert words_of(body) == "no such thing"


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"null", b'{"error": 5}', b"[" * 100_000])
def test_what_says_nothing_is_no_fault(body: bytes) -> None:
    assert len(words_of(body)) <= MAX_MESSAGE
    assert words_of(body[:3]) in ("", "[[[", '{"e', "nul")


def code_of(status: int, body: bytes = b'{"message": "why"}') -> str:
    return error_of(UpstreamRefusal(status, body), "host:1").code


def test_what_is_wrong_with_the_request_is_told_to_its_client() -> None:
    error = error_of(UpstreamRefusal(400, b'{"message": "`top_k` is bad"}'), "host:1")
    assert (error.code, error.retryable) == ("invalid_request", False)
    assert error.message == "the upstream server at host:1: `top_k` is bad"
    assert [code_of(each) for each in (404, 413, 422, 501, 500)] == [
        *("model_not_found", "request_too_large", "invalid_request", "not_supported"),
        "engine_failed",
    ]


@pytest.mark.parametrize(
    "words",
    [
        b"This model's maximum context length is 8 tokens",
        b"Input length (9) exceeds model's maximum context length (8).",  # vLLM
        b"The input (9 tokens) is longer than the model's context length (8 tokens).",  # SGLang
        b"Input length (9 tokens) exceeds the maximum allowed length (8 tokens).",
        b"request (9 tokens) exceeds the available context size (8 tokens), try increasing it",
        b"Input validation error: `inputs` must have less than 8 tokens. Given: 9",  # TGI
    ],
)
def test_a_prompt_that_is_too_long_is_told_as_such(words: bytes) -> None:
    assert code_of(400, words) == "prompt_too_long"


@pytest.mark.parametrize("status", [401, 403, 429, 503, 302])
def test_what_is_wrong_with_the_server_gives_the_request_back(status: int) -> None:
    assert code_of(status) == "shutting_down"


def test_what_it_says_of_its_key_is_not_passed_on() -> None:
    refusal = UpstreamRefusal(401, b"the key sk-123 is wrong")
    assert message_of(refusal) == "it refuses the key of --upstream-key-file (status 401)"
    assert message_of(UpstreamRefusal(500, b"")) == "status 500"
    assert "redirects" in message_of(UpstreamRefusal(307, b"https://elsewhere"))


def test_a_loss_before_the_answer_began_gives_the_request_back() -> None:
    errors: list[RequestError] = [
        loss_of("it is silent", "host:1", has_streamed=has_streamed) for has_streamed in (0, 1)
    ]
    assert [each.code for each in errors] == ["shutting_down", "agent_lost"]
    assert errors[1].message == "the upstream server at host:1 was lost: it is silent"
