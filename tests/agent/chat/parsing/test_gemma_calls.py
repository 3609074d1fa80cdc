import pytest

from arriero.agent.chat.parsing.gemma_calls import MAX_DEPTH, gemma_call
from arriero.agent.chat.parsing.reader import Reader
from tests.agent.chat.recorded import call
from tests.agent.chat.telling import Piece, parsed


def read(text: str) -> tuple[bool, list[Piece], str]:
    reader = Reader()
    return parsed(gemma_call(reader), reader, text)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("{}", "{}"),
        ('{a:<|"|>x "y"\n{<|"|>}', '{"a": "x \\"y\\"\\n{"}'),
        ("{a:1,b:true,c:null,d:-2.5}", '{"a": 1, "b": true, "c": null, "d": -2.5}'),
        ('{a:[],b:[1,<|"|>x<|"|>],c:{d:{}}}', '{"a": [], "b": [1, "x"], "c": {"d": {}}}'),
        ('{<|"|>a<|"|>:bare}', '{"a": "bare"}'),
        ('{a:<|"|>x', '{"a": "x'),
        ("{a:", '{"a": '),
        ("{a", "{"),
        ("{a:1;", '{"a": "1;"'),
    ],
)
def test_calls(text: str, arguments: str) -> None:
    is_call, said, _ = read(f"call:f{text}")
    assert is_call
    assert said == call("f", arguments)


def test_calls_have_a_depth() -> None:
    is_call, said, left = read("call:f{a:" + "[" * 10_000)
    assert is_call
    assert said == call("f", '{"a": ' + "[" * (MAX_DEPTH - 1))
    assert left == "[" * (10_000 - MAX_DEPTH + 1)


@pytest.mark.parametrize("text", ["", "call", "call:", "call:f", "call:{}", "f{}"])
def test_what_is_no_call_is_left(text: str) -> None:
    assert read(text) == (False, [], text)
