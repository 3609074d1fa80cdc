"""Malformed HTTP: how it is logged, and how it is answered."""

import logging

import pytest
from aiohttp.http_exceptions import BadHttpMessage, ContentEncodingError
from aiohttp.web_protocol import RequestPayloadError

from arriero.balancer.api.transport.malformed import (
    LOG_INTERVAL,
    LONGEST_REASON,
    MalformedRequests,
    as_invalid_request,
    reason_of,
)
from tests.balancer.fleet.recording import ManualClock

ERROR = BadHttpMessage("Invalid header token:\n\n  b'Bad Header'\n       ^")


def test_the_reason_is_one_line_of_bounded_length() -> None:
    assert reason_of(ERROR) == "Invalid header token: b'Bad Header' ^"
    assert reason_of(BadHttpMessage("x" * 70_000)) == "x" * LONGEST_REASON


def test_the_reason_of_a_body_is_what_its_parser_said() -> None:
    error = RequestPayloadError("400, message:\n  not gzip")
    error.__cause__ = ContentEncodingError("not gzip")
    assert reason_of(error) == "not gzip"
    assert reason_of(RequestPayloadError("cut off")) == "cut off"


def test_the_answer_names_the_reason() -> None:
    error = as_invalid_request(ERROR)
    assert str(error) == "this is not valid HTTP: Invalid header token: b'Bad Header' ^"


def test_one_line_in_an_interval_counts_those_before_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="arriero.balancer.api.transport.malformed")
    clock = ManualClock()
    malformed = MalformedRequests(clock)
    malformed.log("192.0.2.7", ERROR)
    for _ in range(5):
        malformed.log("192.0.2.8", ERROR)
    clock.now += LOG_INTERVAL
    malformed.log("192.0.2.9", ERROR)
    clock.now += LOG_INTERVAL
    malformed.log("192.0.2.7", ERROR)
    assert [record.levelname for record in caplog.records] == ["INFO"] * 3
    assert all(record.exc_info is None for record in caplog.records)
    assert [record.__dict__["context"] for record in caplog.records] == [
        {"peer": "192.0.2.7"},
        {"peer": "192.0.2.9", "not_logged_before": 5},
        {"peer": "192.0.2.7"},
    ]
