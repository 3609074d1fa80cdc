import re

import pytest

from arriero.agent.chat.calls.named_calls import MAX_HEADER, named_call
from arriero.agent.chat.reader import Reader
from arriero.agent.chat.segments import CallBegan
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
