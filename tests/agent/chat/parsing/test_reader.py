import re

import pytest

from arriero.agent.chat.parsing.reader import Markers, Parse, Reader
from arriero.agent.chat.parsing.segments import CallBegan, CallEnded, TextSegment

WORD = re.compile(r"\w*")


def run(parse: Parse[object]) -> object:
    """What `parse` answers, or `...` if it waits for more text."""
    try:
        next(parse)
    except StopIteration as stop:
        return stop.value
    return ...


def reader_of(text: str, *, is_over: bool = False) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.is_over = is_over
    return reader


class TestMarkers:
    def test_the_first_is_found(self) -> None:
        found = Markers(("<b>", "<a>")).find("x<a><b>", 0)
        assert found is not None
        assert (found[0], found.start()) == ("<a>", 1)

    @pytest.mark.parametrize(("text", "num"), [("x<", 1), ("x<t", 2), ("<too", 0), ("", 0)])
    def test_what_may_begin_one(self, text: str, num: int) -> None:
        assert Markers(("<to>", "<tx>")).num_begun(text, 0) == num

    def test_there_may_be_none(self) -> None:
        assert Markers(()).find("x", 0) is None
        assert Markers(()).num_begun("x", 0) == 0


class TestReading:
    def test_a_literal_is_waited_for_only_while_it_may_come(self) -> None:
        assert run(reader_of("<to").literal(("<tool>",))) is ...
        assert run(reader_of("<ta").literal(("<tool>",))) is None
        assert run(reader_of("<to", is_over=True).literal(("<tool>",))) is None
        assert run(reader_of("<tool>").literal(("<tool>",))) == "<tool>"

    def test_the_longest_literal_wins(self) -> None:
        assert run(reader_of("ab").literal(("ab", "abc"))) is ...
        assert run(reader_of("abd").literal(("ab", "abc"))) == "ab"
        assert run(reader_of("abc").literal(("ab", "abc"))) == "abc"

    def test_a_run_ends_where_its_characters_do(self) -> None:
        assert run(reader_of("ab").run(WORD)) is ...
        assert run(reader_of("ab ").run(WORD)) == "ab"
        assert run(reader_of("", is_over=True).run(WORD)) == ""

    def test_a_run_has_a_limit_wherever_the_text_is_cut(self) -> None:
        assert run(reader_of("abcdef").run(WORD, 3)) == "abc"
        reader = reader_of("ab")
        parse = reader.run(WORD, 3)
        assert run(parse) is ...
        reader.feed("cdef")
        assert run(parse) == "abc"

    def test_a_scan_stops_where_too_much_is_held(self) -> None:
        reader = reader_of('abc"')
        assert reader.scan(re.compile('"'), 3) == ""
        assert reader.num_held == 3
        assert reader.scan(re.compile('"')) == '"'

    def test_going_back(self) -> None:
        reader = reader_of("abc ")
        run(reader.run(WORD))
        reader.back(1)
        assert reader.held_from(0) == "a"
        assert run(reader.run(WORD)) == "bc"


class TestGivingOut:
    def test_up_to_a_marker_text_leaves_at_once_but_for_space(self) -> None:
        reader = reader_of("a b \n")
        parse = reader.until(Markers(("<x>",)), "content")
        assert run(parse) is ...
        assert reader.fetch() == [TextSegment("content", "a b", "a b")]
        reader.feed("<")
        assert run(parse) is ...
        reader.feed("x>c")
        assert run(parse) == "<x>"
        assert reader.held_from(0) == " \n<x>"

    def test_space_at_the_end_is_text(self) -> None:
        reader = reader_of("a \n", is_over=True)
        assert run(reader.until(Markers(("<x>",)), "content")) is None
        assert reader.fetch() == [TextSegment("content", "a \n", "a \n")]
        assert reader.is_at_end

    def test_translated_text_keeps_what_it_was(self) -> None:
        reader = reader_of("ab<x>")
        assert run(reader.translate(Markers(("<x>",)), str.upper)) == "<x>"
        assert reader.fetch() == [TextSegment("tool_call", "AB", "ab")]

    def test_collected_text_is_held(self) -> None:
        reader = reader_of("ab<x>")
        assert run(reader.collect(Markers(("<x>",)))) == ("ab", "<x>")
        assert reader.fetch() == []
        assert reader.num_held == 5

    def test_calls(self) -> None:
        reader = reader_of("f{}e")
        for give in (
            lambda: reader.begin_call("f", "1"),
            reader.give_verbatim,
            reader.end_call,
        ):
            reader.skip()
            reader.skip() if give == reader.give_verbatim else None
            give()
        assert reader.fetch() == [
            CallBegan("f", "1", "f"),
            TextSegment("tool_call", "{}", "{}"),
            CallEnded("e"),
        ]
