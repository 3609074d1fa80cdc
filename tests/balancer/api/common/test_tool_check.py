"""Functions that models can be told of, and can call."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from arriero.balancer.api.common.field_names import FieldNames
from arriero.balancer.api.common.tool_check import FunctionName, check_tools
from arriero.shared.errors import InvalidRequest


def function(**given: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "now", **given}}


@pytest.mark.parametrize(
    "tool",
    [
        function(),
        function(parameters=None),
        function(parameters={"type": "object"}, description="what time it is"),
        {"function": {"name": "now"}},
        {"name": "now", "parameters": {}},
        {"type": "web_search"},
        *(function(name=name) for name in ("a.b", "mcp__files__read", "files/read", "x:1", "-")),
        function(name="x" * 256),
    ],
)
def test_what_is_taken(tool: dict[str, Any]) -> None:
    check_tools([tool])


@pytest.mark.parametrize(
    ("tool", "problem"),
    [
        ({"type": "function"}, "tools[1].function` is missing"),
        ({}, "tools[1].function` is missing"),
        ({"function": None}, "tools[1].function` must be an object, not null"),
        ({"function": {}}, "tools[1].function.name` is missing"),
        ({"name": None}, "tools[1].name` must be a string, not null"),
        (function(name=5), "tools[1].function.name` must be a string, not 5"),
        (function(name=""), "tools[1].function.name` must have only letters a to z, digits and _"),
        (function(name="a b"), "tools[1].function.name` must have only"),
        (function(name="größe"), "tools[1].function.name` must have only"),
        (function(name="a\n"), "tools[1].function.name` must have only"),
        (function(name="x" * 257), "tools[1].function.name` must have only"),
        (function(parameters=[]), "tools[1].function.parameters` must be an object, not []"),
    ],
)
def test_what_is_refused_is_named(tool: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_tools([function(), tool])
    error = caught.value
    assert error.message.startswith(f"`{problem}")
    assert error.message.startswith(f"`{error.field}`")


def test_the_client_reads_its_own_words() -> None:
    with pytest.raises(InvalidRequest, match=r"`functions\[0\]\.name` is missing"):
        check_tools([{"function": {}}], FieldNames({"tools[].function": "functions[]"}))


def test_types_of_apis_have_the_same_rule() -> None:
    adapter = TypeAdapter[str](FunctionName)
    assert adapter.validate_python("files/read") == "files/read"
    for name in ("", "a b", "x" * 257):
        with pytest.raises(ValidationError):
            adapter.validate_python(name)
