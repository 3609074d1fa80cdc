import pytest

from arriero.agent.chat.parsing.json_calls import MAX_HELD, json_calls, json_value, keyed_calls
from arriero.agent.chat.parsing.reader import Reader
from tests.agent.chat.recorded import call
from tests.agent.chat.telling import Piece, parsed


def read(text: str) -> tuple[bool, list[Piece], str]:
    reader = Reader()
    return parsed(json_calls(reader, lambda name: name != "bad"), reader, text)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ('{"name": "f", "arguments": {"a": [1, "}\\""]}}', call("f", '{"a": [1, "}\\""]}')),
        ('{"name": "f", "parameters": {}}', call("f", "{}")),
        ('{"type": "function", "name": "f", "args": {}}', call("f", "{}")),
        ('{"name": "f"}', call("f", "{}")),
        ('{"name": "f", "arguments": null}', call("f", "{}")),
        ('{"name": "f", "arguments": "{\\"a\\": 1}"}', call("f", '{"a": 1}')),
        ('{"arguments": {"a": 1}, "name": "f"}', call("f", '{"a": 1}')),
        ('{"arguments": "{}", "name": "f"}', call("f", "{}")),
        ('{"name": "f\\ud800", "arguments": {}}', call("f?", "{}")),
        ('[{"name": "f"}, {"name": "g"}]', [*call("f", "{}"), *call("g", "{}")]),
        ('{"name": "f"}\n{"name": "g"}', [*call("f", "{}"), *call("g", "{}")]),
        ('{"name": "f"}; {"name": "g"}', [*call("f", "{}"), *call("g", "{}")]),
        ('{"name": "f", "arguments": {"a": ', call("f", '{"a": ')),
        ('{"name": "f", "arguments": {"a": "x\\', call("f", '{"a": "x\\')),
        ('{"name": "f", "arguments": {}, "id": "1"}', call("f", "{}")),
        ('{"name": "f", "arguments": {"a": 1,,}}', call("f", '{"a": 1,,}')),
    ],
)
def test_calls(text: str, pieces: list[Piece]) -> None:
    is_call, said, _ = read(text)
    assert is_call
    assert said == pieces


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "[1]",
        "{}",
        '{"a": 1}',
        '{"name": 1}',
        '{"name": "bad", "arguments": {}}',
        '{"name": "f"',
        '{"name" "f"}',
        '{"name": "",  "arguments": {}',
        f'{{"a": "{"x" * MAX_HELD}", "name": "f"}}',
    ],
)
def test_what_is_no_call_is_left(text: str) -> None:
    if '""' in text:
        reader = Reader()
        is_call, said, left = parsed(json_calls(reader, bool), reader, text)
    else:
        is_call, said, left = read(text)
    assert (is_call, said, left) == (False, [], text)


def test_what_follows_is_left() -> None:
    assert read('{"name": "f"} and more')[2] == " and more"
    assert read('[{"name": "f"}, 3]')[2] == ", 3]"


@pytest.mark.parametrize(
    ("text", "is_whole"), [("{}", True), ('"a"', True), ("12 ", True), ("{", False), ("", False)]
)
def test_values(text: str, is_whole: bool) -> None:
    reader = Reader()
    assert parsed(json_value(reader), reader, text)[0] == is_whole


def read_keyed(text: str) -> tuple[bool, list[Piece], str]:
    reader = Reader()
    return parsed(keyed_calls(reader), reader, text)


@pytest.mark.parametrize(
    ("text", "pieces", "left"),
    [
        ('[{"f": {"a": 1}}, {"g": {}}]', [*call("f", '{"a": 1}'), *call("g", "{}")], "]"),
        ('{"f": {}} rest', call("f", "{}"), " rest"),
        ('[{"f": {}}, {"g": 1}]', call("f", "{}"), ', {"g": 1}]'),
        ('[{"f": {"a": ', call("f", '{"a": '), ""),
    ],
)
def test_names_as_keys(text: str, pieces: list[Piece], left: str) -> None:
    assert read_keyed(text) == (True, pieces, left)


@pytest.mark.parametrize("text", ["", "[]", "[{}]", '["f"]', '{"f": 1}', '{"": {}}'])
def test_what_has_no_name_as_key(text: str) -> None:
    assert read_keyed(text) == (False, [], text)
