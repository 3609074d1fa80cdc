"""Tools as neutral functions, and their changes on the way."""

from typing import Any

import pytest
from pydantic import TypeAdapter
from pydantic_core import to_json

from arriero.balancer.api.anthropic.conversation.tools import (
    FUNCTIONS,
    AnyChoice,
    ClientTool,
    CustomTool,
    NamedChoice,
    ToolChange,
    ToolUseChoice,
    with_changes,
    with_type,
)
from arriero.shared.inference import NamedTool

_change: TypeAdapter[Any] = TypeAdapter(ToolChange)
_choice: TypeAdapter[ToolUseChoice | NamedChoice] = TypeAdapter(AnyChoice)

F = CustomTool(name="f", input_schema={"type": "object"})
G = CustomTool(name="g", input_schema={"type": "object"}, description="does g", strict=True)


def test_functions_of_the_clients_own() -> None:
    assert F.neutral() == {
        "type": "function",
        "function": {"name": "f", "parameters": {"type": "object"}},
    }
    function = G.neutral()["function"]
    assert (function["description"], function["strict"]) == ("does g", True)


def test_tools_that_clients_run() -> None:
    tool = ClientTool(type="memory_20250818", name="memory")
    assert tool.neutral() == {"type": "function", "function": FUNCTIONS["memory_20250818"]}
    strict = ClientTool(type="memory_20250818", name="memory", strict=True)
    assert strict.neutral()["function"]["strict"] is True
    assert "strict" not in FUNCTIONS["memory_20250818"]


@pytest.mark.parametrize("tool", [{"name": "f"}, {"name": "f", "type": None}])
def test_a_type_may_be_left_out(tool: dict[str, Any]) -> None:
    assert with_type(tool) == {"name": "f", "type": "custom"}


def test_other_types_stay() -> None:
    for tool in ({"type": "bash_20250124"}, {"type": 7}, 7, None, []):
        assert with_type(tool) is tool


def added(**tool: Any) -> Any:
    return _change.validate_json(to_json({"type": "tool_addition", "tool": tool}))


def removed(**tool: Any) -> Any:
    return _change.validate_json(to_json({"type": "tool_removal", "tool": tool}))


def by_name(name: str) -> dict[str, Any]:
    return {"type": "tool_reference", "name": name}


def test_changes_are_made_in_their_order() -> None:
    assert with_changes((F, G), [removed(**by_name("f"))]) == (G,)
    back = [removed(**by_name("f")), added(**by_name("f"))]
    assert with_changes((F, G), back) == (G, F)
    definition = {"type": "custom", "name": "f", "input_schema": {"a": 1}}
    (changed,) = with_changes((F,), [added(type="tool_definition", definition=definition)])
    assert changed == CustomTool(name="f", input_schema={"a": 1})


@pytest.mark.parametrize(
    "change",
    [
        added(**by_name("f")),
        added(**by_name("strange")),
        removed(**by_name("strange")),
        removed(type="mcp_tool_reference", server_name="s", name="f"),
        removed(type="mcp_toolset_reference", server_name="s"),
        added(type="tool_definition"),
    ],
)
def test_changes_of_what_is_not_there_change_nothing(change: Any) -> None:
    assert with_changes((F,), [change]) == (F,)


def test_without_changes_tools_stay_as_they_are() -> None:
    assert with_changes((F, F), []) == (F, F)


def test_choices() -> None:
    for given, neutral in (
        ({"type": "auto"}, "auto"),
        ({"type": "any"}, "required"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "f"}, NamedTool(name="f")),
    ):
        assert _choice.validate_json(to_json(given)).neutral() == neutral
