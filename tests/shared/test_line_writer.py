"""Lines are written in order on another thread, and nobody waits for whoever reads them."""

import io
import os
import threading
from collections.abc import Iterator

import pytest

from arriero.shared.line_writer import LineWriter, writes_to

WAIT = 5.0


class Reader:
    """Takes lines while the test lets it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.reads = threading.Event()
        self.is_stuck = threading.Event()

    def write(self, data: bytes) -> None:
        if not self.reads.is_set():
            self.is_stuck.set()
        assert self.reads.wait(WAIT)
        self.lines.append(data.decode())


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
    assert reader.is_stuck.wait(WAIT)
    return writer


def test_lines_are_written_in_order(reader: Reader) -> None:
    reader.reads.set()
    writer = LineWriter(reader.write, notice)
    for number in range(100):
        writer.put(str(number))
    assert writer.flush()
    assert reader.lines == [f"{number}\n" for number in range(100)]


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
