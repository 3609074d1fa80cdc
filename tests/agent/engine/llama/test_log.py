"""llama.cpp's log lines in Python's log."""

import logging
import signal
import subprocess
import sys

import pytest

from arriero.agent.engine.llama.log import MAX_HELD, LineLog

DEBUG, INFO, WARNING, ERROR, CONTINUED = 1, 2, 3, 4, 5


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(record.levelno, record.getMessage()) for record in caplog.records]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> LineLog:
    caplog.set_level(logging.DEBUG)
    return LineLog()


def test_levels(log: LineLog, caplog: pytest.LogCaptureFixture) -> None:
    for level in (DEBUG, INFO, WARNING, ERROR):
        log.receive(level, b"line %d\n" % level)
    assert lines(caplog) == [
        (logging.DEBUG, "line 2"),
        (logging.WARNING, "line 3"),
        (logging.ERROR, "line 4"),
    ]


def test_a_line_in_parts(log: LineLog, caplog: pytest.LogCaptureFixture) -> None:
    log.receive(WARNING, b"one ")
    assert lines(caplog) == []
    log.receive(CONTINUED, b"line\nand ")
    log.receive(CONTINUED, b"another\n")
    assert lines(caplog) == [(logging.WARNING, "one line"), (logging.WARNING, "and another")]


def test_bytes_that_are_no_text(log: LineLog, caplog: pytest.LogCaptureFixture) -> None:
    log.receive(ERROR, b"a token: \xff\n")
    assert lines(caplog) == [(logging.ERROR, "a token: \ufffd")]


def test_percent_signs_are_text(log: LineLog, caplog: pytest.LogCaptureFixture) -> None:
    log.receive(ERROR, b"100%s\n")
    assert lines(caplog) == [(logging.ERROR, "100%s")]


def test_warnings_can_be_had_as_well(log: LineLog) -> None:
    warnings: list[str] = []
    with log.hold_errors(warnings) as errors:
        log.receive(WARNING, b"a warning\n")
        log.receive(ERROR, b"the cause\n")
    log.receive(WARNING, b"later\n")
    assert (errors, warnings) == (["the cause"], ["a warning"])


def test_errors_are_held_on_request(log: LineLog, caplog: pytest.LogCaptureFixture) -> None:
    with log.hold_errors() as errors:
        log.receive(WARNING, b"a warning\n")
        log.receive(ERROR, b"the cause\n")
    assert list(errors) == ["the cause"]
    assert {level for level, _ in lines(caplog)} == {logging.DEBUG}
    log.receive(ERROR, b"later\n")
    assert lines(caplog)[-1] == (logging.ERROR, "later")


def test_few_errors_are_held(log: LineLog) -> None:
    with log.hold_errors() as errors:
        for number in range(100):
            log.receive(ERROR, b"error %d\n" % number)
    assert len(errors) == MAX_HELD
    assert errors[0] == "error 0"


def test_what_is_intended_is_no_error(log: LineLog, caplog: pytest.LogCaptureFixture) -> None:
    log.is_calm = True
    log.receive(ERROR, b"failed to decode\n")
    log.is_calm = False
    log.receive(ERROR, b"out of memory\n")
    assert lines(caplog) == [
        (logging.DEBUG, "failed to decode"),
        (logging.ERROR, "out of memory"),
    ]


# ---- the message of an abort


ABORT = """
import ctypes
import llama_cpp.llama_cpp as llama_cpp
from arriero.agent.engine.llama.log import on_abort

on_abort(lambda line: print("first", line, flush=True))
on_abort(lambda line: print("heard", line, flush=True))
llama_cpp._lib.ggml_abort(b"/build/ggml/ggml.c", 3, b"GGML_ASSERT(%s) failed", b"a / b ==\\n c")
"""


def test_the_last_words_are_heard_before_the_process_ends() -> None:
    ended = subprocess.run([sys.executable, "-c", ABORT], capture_output=True, text=True)
    assert ended.stdout == "heard ggml.c:3: GGML_ASSERT(a / b == c) failed\n"
    assert ended.stderr == ""
    assert ended.returncode == -signal.SIGABRT
