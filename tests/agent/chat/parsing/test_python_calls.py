import pytest

from arriero.agent.chat.parsing import python_calls as module
from arriero.agent.chat.parsing.python_calls import python_calls
from arriero.agent.chat.parsing.reader import Reader
from tests.agent.chat.telling import Piece, parsed


def read(text: str) -> tuple[bool, list[Piece], str]:
    reader = Reader()
    return parsed(python_calls(reader), reader, text)


def call(name: str, arguments: str) -> list[Piece]:
    return [("call", name), ("tool_call", arguments), ("end", "")]


def test_a_list() -> None:
    """The bracket that closes it is read, and held."""
    found = read("[ f(a='x', b=3) , g() ]")
    assert found == (True, [*call("f", '{"a": "x", "b": 3}'), *call("g", "{}")], " ]")


def test_without_brackets() -> None:
    assert read("a.b(x=1)") == (True, call("a.b", '{"x": 1}'), "")


@pytest.mark.parametrize(
    ("python", "json"),
    [
        ("'it\\'s, (so)'", '"it\'s, (so)"'),
        ('"a, b) \\n"', '"a, b) \\n"'),
        ("[1, (2, 3), {'k': None}]", '[1, [2, 3], {"k": null}]'),
        ("True", "true"),
        ("true", "true"),
        ("null", "null"),
        ("-1.5", "-1.5"),
        ("Oslo", '"Oslo"'),
        ("{1, 2}", '"{1, 2}"'),
        ("'\\ud800'", '"?"'),
    ],
)
def test_values(python: str, json: str) -> None:
    assert read(f"f(a={python})") == (True, call("f", f'{{"a": {json}}}'), "")


@pytest.mark.parametrize("text", ["", "[]", "f", "[f]", "(a=1)", '{"name": "f"}', "text f(a=1)"])
def test_what_is_no_call(text: str) -> None:
    is_call, pieces, left = read(text)
    assert (is_call, pieces, left) == (False, [], text)


@pytest.mark.parametrize(
    ("text", "arguments", "left"),
    [
        ("f(a=1, b='x", '{"a": 1', ""),
        ("f(a=1, 2)", '{"a": 1', ""),
        ("f(", "", ""),
    ],
)
def test_a_call_that_breaks_off_stays_one(text: str, arguments: str, left: str) -> None:
    is_call, pieces, _ = read(text)
    assert is_call
    assert "".join(said for kind, said in pieces if kind == "tool_call") == arguments
    assert pieces[-1] == ("end", "")


def test_an_argument_is_bounded() -> None:
    is_call, pieces, _ = read(f"f(a='{'x' * module.MAX_VALUE}')")
    assert (is_call, pieces) == (True, [("call", "f"), ("end", "")])


def test_text_may_have_new_lines_of_its_own() -> None:
    _, pieces, _ = read("f(s='a\n\"b\"')")
    assert pieces == [("call", "f"), ("tool_call", '{"s": "a\\n\\"b\\""}'), ("end", "")]
