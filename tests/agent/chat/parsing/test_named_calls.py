import re

import pytest

from arriero.agent.chat.parsing.named_calls import MAX_HEADER, known_call, named_call
from arriero.agent.chat.parsing.reader import Reader
from arriero.agent.chat.parsing.segments import CallBegan
from tests.agent.chat.recorded import call
from tests.agent.chat.telling import Piece, parsed

HEADER = re.compile(r"(?P<name>\w+)(?:#(?P<id>\d+))?:")


def read(text: str) -> tuple[bool, list[Piece], str]:
    reader = Reader()
    return parsed(named_call(reader, HEADER), reader, text)


def test_a_header_and_arguments() -> None:
    assert read('f: {"a": 1} more') == (True, call("f", '{"a": 1}'), " more")
    assert read('f:{"a": ') == (True, call("f", '{"a": '), "")


def test_an_id_is_kept() -> None:
    reader = Reader()
    reader.feed("f#7:{}")
    list(named_call(reader, HEADER))
    began = reader.fetch()[0]
    assert isinstance(began, CallBegan)
    assert began.id == "7"


@pytest.mark.parametrize("text", ["", "f", "f:", "f {}", "{}", f"{'f' * MAX_HEADER}:{{}}"])
def test_what_is_no_call_is_left(text: str) -> None:
    assert read(text) == (False, [], text)


def read_known(text: str) -> tuple[bool, list[Piece], str]:
    reader = Reader()
    return parsed(known_call(reader, lambda name: name == "f"), reader, text)


def test_a_known_name_alone_is_a_header() -> None:
    assert read_known('f\n{"a": 1}>>>') == (True, call("f", '{"a": 1}'), ">>>")


@pytest.mark.parametrize("text", ["g\n{}", "f\nsays", "f", "", "all\nf\n{}"])
def test_what_is_no_call_of_a_known_name(text: str) -> None:
    assert read_known(text) == (False, [], text)
