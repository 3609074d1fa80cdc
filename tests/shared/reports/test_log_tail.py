"""What is kept of a log for those who look at it from elsewhere."""

import logging
from collections.abc import Iterator

import pytest

from arriero.shared.messages import LogRead, decode_from_agent, encode_from_agent
from arriero.shared.reports.log_lines import MAX_LINE, MAX_LINES, LogLine
from arriero.shared.reports.log_tail import LogTail, level_of, shortened


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.Logger("a test's own")
    yield logger
    logger.handlers.clear()


def a_tail(logger: logging.Logger) -> LogTail:
    tail = LogTail(logging.LogRecord.getMessage)
    logger.addHandler(tail)
    return tail


def test_the_last_lines_at_info_and_above(logger: logging.Logger) -> None:
    tail = a_tail(logger)
    logger.debug("too little")
    for number in range(MAX_LINES + 5):
        logger.info("line %d", number)
    logger.critical("it burns")
    lines = tail.after(0)
    assert [line.text for line in lines[:1] + lines[-2:]] == ["line 6", "line 204", "it burns"]
    assert [line.level for line in lines[-2:]] == ["info", "error"]
    assert len(lines) == MAX_LINES
    assert [line.text for line in tail.after(lines[-3].number)] == ["line 204", "it burns"]
    assert tail.after(lines[-1].number) == ()


def test_numbers_grow_over_processes(logger: logging.Logger) -> None:
    tail = a_tail(logger)
    for _ in range(3):
        logger.info("at once")
    numbers = [line.number for line in tail.after(0)]
    assert numbers == sorted(set(numbers))
    record = logging.LogRecord("x", logging.INFO, "x", 1, "later", (), None)
    record.created += 60.0
    another = LogTail(logging.LogRecord.getMessage)
    another.emit(record)
    another.restore(tail.after(0))
    assert [line.text for line in another.after(0)] == ["at once"] * 3 + ["later"]
    record.created -= 3600.0  # the clock was put back
    another.emit(record)
    assert [line.text for line in another.after(numbers[-1])] == ["later", "later"]


def test_lines_of_another_process_follow_those_that_were_read(logger: logging.Logger) -> None:
    tail, another = a_tail(logger), LogTail(logging.LogRecord.getMessage)
    logger.info("first")
    record = logging.LogRecord("x", logging.INFO, "x", 1, "earlier", (), None)
    record.created -= 60.0
    another.emit(record)
    read = tail.after(0)[-1].number
    for _ in range(2):
        tail.append(another.after(0))
    assert [line.text for line in tail.after(read)] == ["earlier"], "the same line is taken once"
    assert tail.after(read)[0].at == record.created
    logger.info("last")
    assert [line.text for line in tail.after(0)] == ["first", "earlier", "last"]


def test_who_listens_is_told_of_each_line(logger: logging.Logger) -> None:
    tail = a_tail(logger)
    seen: list[int] = []
    forget = tail.listen(lambda: seen.append(len(tail.after(0))))
    logger.info("one")
    logger.info("two")
    tail.append([LogLine(number=1, at=1.0, level="info", text="three")])
    assert seen == [1, 2, 3]
    forget()
    logger.info("four")
    assert seen == [1, 2, 3]


def test_what_cannot_be_written_is_told(logger: logging.Logger) -> None:
    tail = a_tail(logger)
    logger.info("%d lines", "many")
    assert [line.text for line in tail.after(0)] == ["a log record cannot be written: TypeError"]


def test_levels() -> None:
    record = logging.LogRecord("x", logging.WARNING, "x", 1, "", (), None)
    assert level_of(record) == "warning"
    record.levelno = logging.ERROR
    assert level_of(record) == "error"


@pytest.mark.parametrize("text", ["\ud800 half", "é" * 10 * MAX_LINE, "\ud800" * 10 * MAX_LINE])
def test_any_text_fits_into_a_message(text: str) -> None:
    line = LogLine(number=1, at=0.0, level="info", text=shortened(text))
    assert decode_from_agent(encode_from_agent(LogRead(id="r", lines=(line,)))).lines == (line,)  # type: ignore[arg-type,union-attr]
    assert len(line.text) <= MAX_LINE + 3
