"""Every error is one that the official client knows."""

import pytest

from arriero.balancer.api.anthropic.errors import anthropic_error, anthropic_status, anthropic_type
from arriero.shared.errors import (
    BY_CODE,
    AgentLost,
    NotSupported,
    PromptTooLong,
    QueueFull,
    QueueTimeout,
    RateLimited,
    RequestError,
    RequestTooLarge,
    ShuttingDown,
    ThreadNotFound,
)
from tests.balancer.api.anthropic.strict import checked_error


# Anthropic's documents name the type of this one, and the client has no model of it.
@pytest.mark.parametrize("cls", [cls for cls in BY_CODE.values() if cls is not RequestTooLarge])
def test_all_have_a_shape(cls: type[RequestError]) -> None:
    body = anthropic_error(cls("what is wrong"), "r1")
    assert checked_error(body).request_id == "r1"
    details = body["error"].pop("details", None)
    assert details == ({"error_code": "thread_not_found"} if cls is ThreadNotFound else None)
    assert body["error"] == {"type": anthropic_type(cls("")), "message": "what is wrong"}


@pytest.mark.parametrize(
    ("cls", "type"),
    [
        (PromptTooLong, "invalid_request_error"),
        (NotSupported, "invalid_request_error"),
        (RequestTooLarge, "request_too_large"),
        (RateLimited, "rate_limit_error"),
        (QueueFull, "overloaded_error"),
        (QueueTimeout, "timeout_error"),
        (AgentLost, "api_error"),
    ],
)
def test_types(cls: type[RequestError], type: str) -> None:
    assert anthropic_type(cls("")) == type


def test_overload_has_a_status_of_its_own() -> None:
    assert {anthropic_status(each("")) for each in (QueueFull, ShuttingDown)} == {529}
    assert anthropic_status(QueueTimeout("")) == 504
