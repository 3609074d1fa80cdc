"""Lines are written in order on another thread, and nobody waits for whoever reads them."""

import io
import os
import threading
from collections.abc import Iterator

import pytest

from arriero.shared import line_writer
from arriero.shared.line_writer import LineWriter, writes_to
from tests.waiting import HANGS


class Reader:
    """Takes lines while the test lets it."""

    def __init__(self) -> None:
        self.writes: list[str] = []
        self.reads = threading.Event()
        self.is_stuck = threading.Event()

    def write(self, data: bytes) -> None:
        if not self.reads.is_set():
            self.is_stuck.set()
        assert self.reads.wait(HANGS)
        self.writes.append(data.decode())

    @property
    def lines(self) -> list[str]:
        return "".join(self.writes).splitlines(keepends=True)


def notice(num: int) -> str:
    return f"{num} dropped"


@pytest.fixture
def reader() -> Iterator[Reader]:
    reader = Reader()
    yield reader
    reader.reads.set()


def stuck(reader: Reader, max_waiting: int) -> LineWriter:
    """A writer in the midst of its first line, which nobody reads."""
    writer = LineWriter(reader.write, notice, max_waiting=max_waiting)
    writer.put("1")
    assert reader.is_stuck.wait(HANGS)
    return writer


def test_lines_are_written_in_order(reader: Reader) -> None:
    reader.reads.set()
    writer = LineWriter(reader.write, notice)
    for number in range(100):
        writer.put(str(number))
    assert writer.flush()
    assert reader.lines == [f"{number}\n" for number in range(100)]


def test_a_line_that_comes_alone_is_written_at_once() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading) as reader, os.fdopen(writing, "w") as stream:
        writer = LineWriter(writes_to(stream), notice)
        writer.put("alone")
        assert reader.readline() == "alone\n"  # nobody flushes


def test_lines_that_come_together_are_written_together(reader: Reader) -> None:
    writer = stuck(reader, max_waiting=100)
    for line in "234":
        writer.put(line)
    reader.reads.set()
    assert writer.flush()
    assert reader.writes == ["1\n", "2\n3\n4\n"]


def test_what_is_gathered_is_written_though_nobody_flushes() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading) as reader, os.fdopen(writing, "w") as stream:
        writer = LineWriter(writes_to(stream), notice)
        for number in range(5):
            writer.put(str(number))
            assert reader.readline() == f"{number}\n"


def test_one_write_is_not_larger_than_what_a_pipe_takes(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_writer, "MOST_AT_ONCE", 4)
    writer = stuck(reader, max_waiting=100)
    for line in ("2", "3", "4", "longer than that", "5"):
        writer.put(line)
    reader.reads.set()
    assert writer.flush()
    assert reader.writes == ["1\n", "2\n3\n", "4\n", "longer than that\n", "5\n"]


def test_what_does_not_fit_is_dropped_and_told_when_there_is_room(reader: Reader) -> None:
    writer = stuck(reader, max_waiting=6)
    for line in "2345":
        writer.put(line)
    assert writer.num_dropped == 2
    reader.reads.set()
    assert writer.flush()
    writer.put("6")
    assert writer.flush()
    assert reader.lines == ["1\n", "2\n", "3\n", "2 dropped\n", "6\n"]
    assert writer.num_dropped == 2


def test_what_was_dropped_is_told_before_the_next_line_that_fits(reader: Reader) -> None:
    writer = stuck(reader, max_waiting=6)
    for line in ("2", "too long", "3"):
        writer.put(line)
    reader.reads.set()
    assert writer.flush()
    assert reader.lines == ["1\n", "2\n", "1 dropped\n", "3\n"]


def test_flushing_gives_up_when_nobody_reads(reader: Reader) -> None:
    writer = stuck(reader, max_waiting=6)
    assert not writer.flush(0.01)
    reader.reads.set()
    assert writer.flush()


def test_closing_writes_what_waits(reader: Reader) -> None:
    reader.reads.set()
    writer = LineWriter(reader.write, notice)
    writer.put("last words")
    writer.close()
    assert reader.lines == ["last words\n"]
    writer.put("too late")
    assert writer.num_dropped == 1


def test_a_reader_that_is_gone_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        writer = LineWriter(writes_to(stream), notice)
        writer.put("x")
        assert writer.flush()
        assert writer.num_dropped == 1


def test_lone_surrogates_are_escaped(reader: Reader) -> None:
    reader.reads.set()
    writer = LineWriter(reader.write, notice)
    writer.put("\ud800")
    assert writer.flush()
    assert reader.lines == ["\\ud800\n"]


def test_to_a_file_that_does_not_block_it_waits_for_room() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    text = "x" * 200_000
    with os.fdopen(reading) as reader, os.fdopen(writing, "w") as stream:
        writer = LineWriter(writes_to(stream), notice)
        writer.put(text)
        assert reader.readline() == text + "\n"
        assert writer.flush()


def test_to_a_stream_in_memory() -> None:
    stream = io.StringIO()
    writer = LineWriter(writes_to(stream), notice)
    writer.put("hello")
    assert writer.flush()
    assert stream.getvalue() == "hello\n"
