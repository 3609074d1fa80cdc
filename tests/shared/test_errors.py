"""The tree of errors: its table, and the way over the wire and back."""

import re

import pytest

from arriero.shared import errors
from arriero.shared.errors import (
    BY_CODE,
    AgentLost,
    EngineFailed,
    InternalError,
    InvalidRequest,
    PromptTooLong,
    QueueFull,
    RequestError,
    Unauthorized,
    WireError,
    from_agent,
    from_wire,
    public_body,
    status_of,
    to_wire,
)

ROW = re.compile(r"^\| `(\w+)` \| (\d+) \| (\w+) \| (yes|no) \|$", re.MULTILINE)


def leaves(cls: type[RequestError]) -> list[type[RequestError]]:
    own = [child for child in cls.__subclasses__() if child.__module__ == errors.__name__]
    return [leaf for child in own for leaf in leaves(child)] if own else [cls]


def test_the_table_is_the_tree() -> None:
    table = set(ROW.findall(errors.__doc__ or ""))
    tree = {
        (cls.code, str(cls.status), str(cls.source), "yes" if cls.retryable else "no")
        for cls in leaves(RequestError)
    }
    assert table == tree


def test_codes_are_unique() -> None:
    assert len(BY_CODE) == len(leaves(RequestError))


@pytest.mark.parametrize("cls", BY_CODE.values(), ids=lambda cls: cls.code)
def test_over_the_wire_and_back(cls: type[RequestError]) -> None:
    error = cls("it broke", field="prompt", retry_after=1.5)
    again = from_wire(to_wire(error))
    assert type(again) is cls
    assert again == error


def test_an_unknown_code_becomes_an_internal_error_that_keeps_its_message() -> None:
    error = from_wire(WireError(code="from_the_future", message="odd", retryable=False))
    assert error == InternalError("odd")


def test_errors_are_equal_when_a_client_could_not_tell_them_apart() -> None:
    assert QueueFull("256 wait") == QueueFull("256 wait")
    assert hash(QueueFull("256 wait")) == hash(QueueFull("256 wait"))
    assert QueueFull("256 wait") != QueueFull("255 wait")
    assert QueueFull("256 wait") != AgentLost("256 wait")
    assert QueueFull("256 wait") != "256 wait"


def test_statuses() -> None:
    assert status_of(InvalidRequest("no")) == 400
    assert status_of(AgentLost("gone")) == 502
    assert status_of(QueueFull("full")) == 503


def test_the_public_body_names_a_field_and_a_time_only_where_there_is_one() -> None:
    assert public_body(QueueFull("256 wait")) == {
        "code": "queue_full",
        "message": "256 wait",
        "retryable": True,
    }
    assert public_body(QueueFull("256 wait", retry_after=1.23456))["retry_after"] == 1.235
    assert public_body(InvalidRequest("`seed` is odd", field="seed"))["field"] == "seed"


class TestPromptTooLong:
    @pytest.mark.parametrize(
        "pattern",
        [
            r"prompt is too long[^0-9]*(\d+) tokens? > (\d+)",
            r"(?i)this model's maximum context length is",
        ],
    )
    @pytest.mark.parametrize("is_at_least", [False, True])
    def test_it_has_the_words_that_clients_look_for(self, pattern: str, is_at_least: bool) -> None:
        error = PromptTooLong.of(15013, 4095, is_at_least=is_at_least, field="messages")
        found = re.search(pattern, error.message)
        assert found is not None
        assert found.groups() in ((), ("15013", "4095"))

    def test_it_names_its_field_where_there_is_one(self) -> None:
        assert PromptTooLong.of(9, 8, field="prompt").message.startswith("`prompt`: prompt is too")
        assert PromptTooLong.of(9, 8, field="prompt").field == "prompt"
        assert PromptTooLong.of(9, 8).message == (
            "prompt is too long: 9 tokens > 8 maximum. "
            "This model's maximum context length is 8 tokens."
        )


@pytest.mark.parametrize("cls", leaves(RequestError))
def test_an_agent_ends_requests_with_its_own_errors_alone(cls: type[RequestError]) -> None:
    """It knows nothing of keys, limits and queues."""
    told = from_agent(to_wire(cls("why", field="prompt", retry_after=2.0)))
    own = cls.source is not errors.Source.BALANCER and cls.code not in (
        *("unauthorized", "forbidden", "forbidden_host", "not_found", "thread_not_found"),
        *("method_not_allowed", "conflict", "first_token_timeout", "token_timeout"),
        *("unsupported_encoding", "model_failed"),
    )
    is_own = own or cls.code in ("internal_error", "shutting_down")
    assert type(told) is (cls if is_own else EngineFailed)
    assert (told.message, told.field, told.retry_after) == ("why", "prompt", 2.0)


def test_what_crosses_a_socket_is_bounded() -> None:
    wire = to_wire(Unauthorized("x" * 10**6, field="f" * 10**6, retry_after=-1e300))
    assert (len(wire.message), len(wire.field or ""), wire.retry_after) == (8000, 300, 0.0)
    assert to_wire(InvalidRequest("x", retry_after=1e300)).retry_after == 86_400.0
