import json
from typing import Any

import pytest

from arriero.cli.batch_lines import MAX_LINE, Line, answered, has_failed, parse_line, result_line

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("What?", {"messages": [{"role": "user", "content": "What?"}]}),
        ('"a\\nb"', {"messages": [{"role": "user", "content": "a\nb"}]}),
        ('{"prompt": "x", "seed": 2}', {"prompt": "x", "seed": 2}),
        ("[1, 2]", {"messages": [{"role": "user", "content": "[1, 2]"}]}),
    ],
)
def test_native_lines_take_defaults(text: str, body: dict[str, Any]) -> None:
    defaults = {"seed": 1, "max_tokens": 5}
    assert parse_line(3, text, defaults) == Line(3, body=defaults | body)


def test_openais_lines_take_none() -> None:
    text = json.dumps({"custom_id": "a", "method": "POST", "url": CHAT, "body": {"n": 2}})
    assert parse_line(1, text, {"seed": 1}) == Line(1, CHAT, {"n": 2}, "a")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{bad", "not JSON"),
        ('{"a":' * 100_000, "not JSON"),
        ("x" * (MAX_LINE + 1), "longer than"),
        ('{"custom_id": 7, "url": "/v1/completions", "body": {}}', "custom_id"),
        ('{"custom_id": "a", "url": "/v1/files", "body": {}}', "url: must be one of"),
        ('{"custom_id": "a", "url": "/v1/completions"}', "body: must be an object"),
        ('{"custom_id": "a", "url": "/v1/completions", "body": {"stream": true}}', "body.stream"),
    ],
)
def test_wrong_lines_say_what_is_wrong(text: str, problem: str) -> None:
    found = parse_line(1, text, {}).problem
    assert found is not None
    assert problem in found


def test_what_was_asked_tells_one_line_from_another() -> None:
    asked = [parse_line(1, text, {"seed": 1}).digest for text in ("hello", "hello", "goodbye")]
    assert asked[0] == asked[1] != asked[2]
    assert parse_line(1, "hello", {"seed": 2}).digest != asked[0]


def test_results_are_found_again() -> None:
    native, openai = Line(4), Line(5, CHAT, {}, "mine")
    error = {"code": "engine_failed", "message": "m", "status": 500}
    gone = {"code": "unreachable", "message": "m", "status": None}
    for line, key in ((native, 4), (openai, "mine")):
        good = result_line(line, answer={"id": "x", "text": "é\n"})
        bad = [result_line(line, error=each) for each in (error, gone)]
        assert [answered(each) for each in (good, *bad)] == [(key, line.digest)] * 3
        assert [has_failed(each) for each in (good, *bad)] == [False, True, True]
        assert all(each.endswith("\n") and each.count("\n") == 1 for each in (good, *bad))


def test_openais_results_have_their_form() -> None:
    line = Line(5, CHAT, {}, "mine")
    good = json.loads(result_line(line, answer={"id": "c1"}))
    assert good["response"] == {"status_code": 200, "request_id": "c1", "body": {"id": "c1"}}
    assert good["error"] is None
    error = {"code": "invalid_request", "message": "m", "status": 400}
    bad = json.loads(result_line(line, error=error))
    assert (bad["response"]["status_code"], bad["error"]) == (400, None)


@pytest.mark.parametrize("torn", ["", "{", '{"line":', "[]", "{}", '{"line": null}', "7"])
def test_what_is_no_result(torn: str) -> None:
    assert answered(torn) is None
