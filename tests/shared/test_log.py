"""What logs look like, to people and to machines."""

import io
import json
import logging
import os
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from arriero.shared import log
from arriero.shared.line_writer import MAX_WAITING
from arriero.shared.log import context, redact

logger = logging.getLogger("arriero.test")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("arriero")
    handlers, level, own_level = root.handlers[:], root.level, ours.level
    root.handlers = []  # so that a replaced handler is not closed under the test runner
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers = handlers
    root.setLevel(level)
    ours.setLevel(own_level)
    logging.captureWarnings(False)


def text_of(say: Callable[[], None]) -> str:
    stream = io.StringIO()
    log.setup("text", "info", stream)
    say()
    log.flush()
    return stream.getvalue()


def json_of(say: Callable[[], None]) -> dict[str, object]:
    stream = io.StringIO()
    log.setup("json", "info", stream)
    say()
    log.flush()
    (line,) = stream.getvalue().splitlines()
    entry: dict[str, object] = json.loads(line)
    return entry


def test_text_is_time_level_message_and_context() -> None:
    line = text_of(lambda: logger.info("agent %s", "connected", extra=context(agent="a", slots=4)))
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3} INFO    agent connected agent=a slots=4\n", line)


def test_text_quotes_what_would_not_be_one_word() -> None:
    values = context(name="two words", empty="", equation="a=b", line="a\nb", third=1 / 3)
    line = text_of(lambda: logger.info("odd", extra=values))
    assert line.endswith(
        'odd name="two words" empty="" equation="a=b" line="a\\nb" third=0.333333\n'
    )


def test_json_is_one_object_a_line() -> None:
    entry = json_of(lambda: logger.warning("slow\nreader", extra=context(agent="a", seconds=1.5)))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(entry.pop("time")))
    assert entry == {
        "level": "warning",
        "logger": "arriero.test",
        "message": "slow\nreader",
        "agent": "a",
        "seconds": 1.5,
    }


def test_a_context_may_use_any_name_and_hides_nothing_of_the_entry() -> None:
    entry = json_of(lambda: logger.info("hello", extra=context(name="n", message="m", level="l")))
    assert (entry["name"], entry["message"], entry["level"]) == ("n", "hello", "info")


def test_values_of_none_are_left_out() -> None:
    assert context(agent=None, slots=0) == {"context": {"slots": 0}}


def boom() -> None:
    try:
        raise ValueError("ws://u:secret@host is odd")
    except ValueError:
        logger.exception("it broke")


def test_a_traceback_follows_the_line_in_text() -> None:
    lines = text_of(boom).splitlines()
    assert lines[0].endswith("it broke")
    assert lines[1] == "Traceback (most recent call last):"
    assert lines[-1] == "ValueError: ws://u:***@host is odd"


def test_a_traceback_stays_in_the_object_in_json() -> None:
    assert str(json_of(boom)["traceback"]).endswith("ValueError: ws://u:***@host is odd")


def test_passwords_are_masked_everywhere() -> None:
    url = "postgresql://me:pass:word@db/x"
    assert "word" not in text_of(lambda: logger.info("to %s", url, extra=context(url=url)))
    assert "word" not in str(json_of(lambda: logger.info("to %s", url, extra=context(url=url))))
    assert redact("ws://host:8060/a@b") == "ws://host:8060/a@b"
    assert redact(f"sent by x/ark_{'A_-9' * 10}abc!") == "sent by x/ark_***!"
    assert redact("model ark_tiny") == "model ark_tiny"


LONG = "é" * 100_000


def fail_at_length() -> None:
    try:
        raise ValueError(f"ws://u:secret@{LONG}")
    except ValueError:
        logger.exception("cannot read %s", LONG, extra=context(url=LONG, peer="somebody"))


def test_no_part_of_a_line_is_longer_than_it_may_be() -> None:
    entry = json_of(fail_at_length)
    limits = {
        "message": log.MAX_MESSAGE_BYTES,
        "url": log.MAX_VALUE_BYTES,
        "traceback": log.MAX_TRACEBACK_BYTES,
    }
    for name, most in limits.items():
        text = str(entry[name])
        assert len(text.encode()) <= most + 50
        assert re.search(r"é … \d+ bytes cut … é", text), name
    assert str(entry["message"]).startswith("cannot read é")
    assert str(entry["traceback"]).startswith("Traceback (most recent call last)")
    assert entry["peer"] == "somebody"


def test_lines_of_text_are_bounded_too() -> None:
    text = text_of(fail_at_length)
    assert text.count("bytes cut") == 3
    assert len(text.encode()) < 64 * 1024
    assert "secret" not in text


def test_a_password_is_masked_before_its_url_is_cut() -> None:
    half = log.MAX_MESSAGE_BYTES // 2
    url = "x" * (half - len("ws://u:sec")) + "ws://u:secret@host/" + "y" * half
    assert "sec" not in text_of(lambda: logger.info("%s", url))


def test_auto_is_text_on_a_terminal_and_json_otherwise() -> None:
    terminal, file = Terminal(), io.StringIO()
    log.setup("auto", "info", terminal)
    logger.info("hello")
    log.setup("auto", "info", file)
    logger.info("hello")
    log.flush()
    assert not terminal.getvalue().startswith("{")
    assert json.loads(file.getvalue())["message"] == "hello"


def test_the_level_is_for_our_modules_and_others_only_warn() -> None:
    stream = io.StringIO()
    log.setup("text", "debug", stream)
    logger.debug("ours")
    logging.getLogger("somebody").info("theirs")
    logging.getLogger("somebody").warning("beware")
    log.flush()
    assert [line.split()[-1] for line in stream.getvalue().splitlines()] == ["ours", "beware"]


def test_warnings_are_logged() -> None:
    def warn() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            logging.captureWarnings(True)
            warnings.warn("old", UserWarning, stacklevel=1)
            logging.captureWarnings(False)

    assert "UserWarning: old" in text_of(warn)


class Unreadable:
    def __str__(self) -> str:
        raise ValueError("it has no text")


def test_nothing_that_is_logged_steers_a_terminal_or_makes_up_a_record() -> None:
    evil = "\x1b]0;t\x07\x9b2J\u202e\r\n12:00:00.000 INFO    forged"

    def fail() -> None:
        try:
            raise ValueError(evil)
        except ValueError:
            logger.exception("refused: %s", evil, extra=context(agent=evil, word="\x1b]0;\x07"))

    escaped = r"\u001b]0;t\u0007\u009b2J\u202e\r\n12:00:00.000 INFO    forged"
    first, *traceback = text_of(fail).splitlines()
    assert f"refused: {escaped} " in first
    assert f'agent="{escaped}" word=\\u001b]0;\\u0007' in first
    assert r"ValueError: \u001b]0;t\u0007\u009b2J\u202e\r" in traceback
    assert text_of(lambda: log.say(evil)) == f"{escaped}\n"

    entry = json_of(fail)
    assert (entry["message"], entry["agent"]) == (f"refused: {evil}", evil)


def test_a_record_that_cannot_be_formatted_is_logged_as_such() -> None:
    text = text_of(lambda: logger.info("here is %s", Unreadable()))
    assert text.startswith("a log record cannot be written: Traceback")
    assert "it has no text" in text


def test_a_line_as_it_stands_comes_after_what_was_logged() -> None:
    def say() -> None:
        logger.info("first")
        log.say("program: second")

    assert text_of(say).endswith("first\nprogram: second\n")


def test_without_a_setup_lines_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    log.say("program: alone")
    log.flush()
    assert capsys.readouterr().err == "program: alone\n"
    assert log.num_dropped() == 0


def test_a_log_that_was_moved_is_opened_again(tmp_path: Path) -> None:
    file, moved = tmp_path / "log", tmp_path / "log.1"
    with file.open("a") as stream:
        log.setup("text", "info", stream)
        logger.info("first")
        log.flush()
        file.rename(moved)
        logger.info("second")
        log.flush()
        log.reopen()
        logger.info("third")
        log.flush()
        log.reopen()
        logger.info("fourth")
        log.flush()
    assert [line.split()[-1] for line in moved.read_text().splitlines()] == ["first", "second"]
    assert [line.split()[-1] for line in file.read_text().splitlines()] == ["third", "fourth"]


def test_a_log_that_cannot_be_opened_again_stays_where_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    with (folder / "log").open("a") as stream:
        log.setup("text", "info", stream)
        folder.rename(tmp_path / "moved")
        log.reopen()
        log.flush()
    assert "the log file cannot be reopened" in (tmp_path / "moved/log").read_text()


def test_a_log_that_is_no_file_has_nothing_to_open() -> None:
    assert text_of(log.reopen) == ""


def test_lines_that_nobody_reads_are_dropped_and_nobody_waits_for_them() -> None:
    reading, writing = os.pipe()
    with open(writing, "w") as stream:  # noqa: PTH123
        log.setup("json", "info", stream)
        for _ in range(2 * MAX_WAITING // log.MAX_MESSAGE_BYTES):
            logger.info("x" * log.MAX_MESSAGE_BYTES)
        assert log.num_dropped() > 0
        with open(reading) as reader:  # noqa: PTH123
            told = next(line for line in reader if "were dropped" in line)
            logger.info("and on")
            assert json.loads(next(reader))["message"] == "and on"
        assert json.loads(told)["message"] == (
            f"{log.num_dropped()} lines of the log were dropped: nobody read them"
        )


def test_the_last_lines_are_kept_for_those_who_look() -> None:
    assert log.recent() == ()
    log.setup("text", "info", io.StringIO())
    logger.info("at postgresql://me:secret@db/x", extra=context(agent="a b", slots=4))
    try:
        raise ValueError("no")
    except ValueError:
        logger.exception("it failed")
    first, second = log.recent()
    assert first.text == 'at postgresql://me:***@db/x agent="a b" slots=4'
    assert (second.level, second.text) == ("error", "it failed ValueError: no")
    assert log.recent(first.number) == (second,)
    log.restore((first,))
    assert log.recent() == (first, first, second)
