from typing import Any

import pytest

from bench.chaos.record import Record, endings


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([{"event": "token", "text": "a"}, {"event": "done", "id": "r"}], ["done"]),
        ([{"event": "done", "id": "a"}, {"event": "done", "id": "b"}], ["done", "done"]),
        ([{"event": "error", "error": {"code": "agent_lost"}}], ["agent_lost"]),
        ([{"error": {"code": -32000, "data": {"code": "queue_full"}}}], ["queue_full"]),
        ([{"choices": [{"delta": {}, "finish_reason": "stop"}]}, {"choices": []}], ["done"]),
        ([{"choices": [{"delta": {"content": "a"}, "finish_reason": None}]}], []),
        ([{"type": "message_delta"}, {"type": "message_stop"}], ["done"]),
        ([{"type": "error", "error": {"type": "overloaded_error"}}], ["shutting_down"]),
        ([{"type": "response.completed", "response": {"error": None}}], ["done"]),
        ([{"type": "response.failed", "response": {"error": {"code": "x"}}}], ["x"]),
        ([{"error": {"code": "shutting_down"}}], ["shutting_down"]),
        ([{"tokens": [1, 2]}], []),
    ],
)
def test_how_an_answer_says_that_it_ended(events: list[Any], expected: list[str]) -> None:
    assert endings(events) == expected


def test_silences_are_between_signs_of_life() -> None:
    record = Record("text", sent_at=1.0, stamps=[2.0, 5.0], ended_at=5.5)
    assert record.silences == [(1.0, 2.0), (2.0, 5.0), (5.0, 5.5)]


def test_errors_are_the_ends_that_are_not_done() -> None:
    assert Record("batch", 0.0, endings=["done", "agent_lost"]).errors == ["agent_lost"]
