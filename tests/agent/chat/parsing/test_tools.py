import json
from typing import Any

import pytest

from arriero.agent.chat.parsing.tools import Tools
from tests.agent.chat.telling import TOOLS


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("get_weather", {"city": "Oslo"}),
        ("get_weather", {"city": "Oslo", "days": 3, "unit": "C", "more": None}),
        ("get_weather", {"city": "Oslo", "days": 3.0}),
        ("now", {"anything": 1}),
    ],
)
def test_calls_that_fit(name: str, arguments: dict[str, Any]) -> None:
    assert TOOLS.complaint(name, json.dumps(arguments)) is None


@pytest.mark.parametrize(
    ("name", "arguments", "complaint"),
    [
        ("nothing", "{}", "there is no tool 'nothing'"),
        ("now", "{", "are not valid JSON"),
        ("now", "[" * 100_000, "are not valid JSON"),
        ("now", "[]", "are not an object"),
        ("get_weather", "{}", "`city` in the arguments for `get_weather` is missing"),
        ("get_weather", '{"city": 1}', "`city` in the arguments"),
        ("get_weather", '{"city": "Oslo", "days": true}', "`days` in the arguments"),
        ("get_weather", '{"city": "Oslo", "days": 1.5}', "`days` in the arguments"),
        ("get_weather", '{"city": "Oslo", "unit": "K"}', "`unit` in the arguments"),
    ],
)
def test_calls_that_do_not(name: str, arguments: str, complaint: str) -> None:
    found = TOOLS.complaint(name, arguments)
    assert found is not None
    assert complaint in found


def test_unknown_properties_only_where_they_are_forbidden() -> None:
    closed = {"properties": {"a": {}}, "additionalProperties": False}
    tools = Tools([{"name": "f", "parameters": closed}])
    assert tools.complaint("f", '{"a": 1}') is None
    assert tools.complaint("f", '{"b": 1}') == ("`b` in the arguments for `f` is unknown")


@pytest.mark.parametrize(
    "schema",
    [
        None,
        3,
        {"properties": 3, "required": 3},
        {"properties": {"a": 3}},
        {"properties": {"a": {"type": ["integer", "null"]}}},
        {"properties": {"a": {"type": "thing", "enum": 3}}},
        {"properties": {"a": {"type": 3}}},
    ],
)
def test_schemas_that_say_nothing_are_no_reason_to_complain(schema: Any) -> None:
    tools = Tools([{"type": "function", "function": {"name": "f", "parameters": schema}}])
    assert tools.complaint("f", '{"a": null}') is None


def test_entries_without_a_function_are_passed_over() -> None:
    tools = Tools([{}, {"type": "function", "function": 3}, {"name": 3}])
    assert not tools.is_known("f")


def test_what_is_text() -> None:
    assert TOOLS.is_text("get_weather", "city")
    assert not TOOLS.is_text("get_weather", "days")
    assert TOOLS.is_text("get_weather", "unknown")
    assert TOOLS.is_text("unknown", "unknown")


@pytest.mark.parametrize(
    ("key", "written", "value"),
    [("days", "3", "3"), ("city", "3", '"3"'), ("city", "Oslo", '"Oslo"'), ("more", "3", "3")],
)
def test_what_is_written_means_what_fits(key: str, written: str, value: str) -> None:
    assert TOOLS.value("get_weather", key, written) == value
