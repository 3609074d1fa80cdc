import pytest

from arriero.balancer.api.openai.errors import openai_error
from arriero.shared.errors import (
    BY_CODE,
    AgentLost,
    Forbidden,
    InvalidRequest,
    ModelNotFound,
    PromptTooLong,
    QueueFull,
    RateLimited,
    RequestError,
    Unauthorized,
)


@pytest.mark.parametrize(
    ("error", "type", "code"),
    [
        (InvalidRequest("x", field="top_p"), "invalid_request_error", "invalid_request"),
        (PromptTooLong("x", field="prompt"), "invalid_request_error", "context_length_exceeded"),
        (Unauthorized("x"), "authentication_error", "unauthorized"),
        (Forbidden("x"), "permission_error", "forbidden"),
        (ModelNotFound("x", field="model"), "invalid_request_error", "model_not_found"),
        (RateLimited("x"), "rate_limit_error", "rate_limit_exceeded"),
        (AgentLost("x"), "server_error", "agent_lost"),
        (QueueFull("x"), "server_error", "queue_full"),
    ],
)
def test_types_and_codes(error: RequestError, type: str, code: str) -> None:
    expected = {"message": "x", "type": type, "param": error.field, "code": code}
    assert openai_error(error) == {"error": expected}


@pytest.mark.parametrize("cls", BY_CODE.values())
def test_every_error_has_a_shape(cls: type[RequestError]) -> None:
    assert set(openai_error(cls("x"))["error"]) == {"message", "type", "param", "code"}
