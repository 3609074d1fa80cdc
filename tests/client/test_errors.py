import pytest

from arriero.client.errors import failure


def test_what_the_balancer_says() -> None:
    body = {"error": {"code": "queue_full", "message": "no room", "retryable": True}}
    error = failure(body, status=503, retry_after=2.0)
    assert (error.code, error.message, error.is_retryable) == ("queue_full", "no room", True)
    assert (error.status, error.retry_after, error.request_id) == (503, 2.0, None)


@pytest.mark.parametrize("body", [None, [], "x", {}, {"error": "x"}])
def test_what_somebody_else_says(body: object) -> None:
    error = failure(body, status=502)
    assert (error.code, error.is_retryable) == ("unexpected_answer", False)
    assert str(error) == "unexpected answer with status 502 (unexpected_answer)"
