"""Forces tool calls on the way to the fleet, since clients cannot be told to ask for them.

The demo model would call nothing sensible by itself. `tool_choice` makes its grammar allow only
the one call, and the tool's schema is narrowed to the arguments that the test wants. The fleet and
the client work as ever: the model writes the call, the client carries it out, and its result is
part of the next prompt. Sampling is greedy, so that each run is the same.
"""

from collections.abc import Callable
from typing import Any

from client_tests.recorder import Edit

Body = dict[str, Any]


def only(arguments: dict[str, str]) -> dict[str, Any]:
    """A schema that these arguments alone satisfy."""
    return {
        "type": "object",
        "properties": {name: {"type": "string", "enum": [v]} for name, v in arguments.items()},
        "required": list(arguments),
        "additionalProperties": False,
    }


def messages_call(name: str, arguments: dict[str, str], num_calls: int) -> Edit:
    """For `/v1/messages`: forces `name` until there are `num_calls` results."""

    def num_results(body: Body) -> int:
        contents = [each["content"] for each in body["messages"]]
        blocks = [block for each in contents if isinstance(each, list) for block in each]
        return sum(block["type"] == "tool_result" for block in blocks)

    choice = {"type": "tool", "name": name}
    return _forcing(name, "input_schema", arguments, num_results, num_calls, choice)


def responses_call(name: str, arguments: dict[str, str], num_calls: int) -> Edit:
    """For `/v1/responses`, likewise."""

    def num_results(body: Body) -> int:
        return sum(item["type"] == "function_call_output" for item in body["input"])

    choice = {"type": "function", "name": name}
    return _forcing(name, "parameters", arguments, num_results, num_calls, choice)


def _forcing(
    name: str,
    schema: str,
    arguments: dict[str, str],
    num_results: Callable[[Body], int],
    num_calls: int,
    choice: Body,
) -> Edit:
    def edit(path: str, body: Body) -> Body:
        tools = body.get("tools") or []
        if not any(tool.get("name") == name for tool in tools):
            return body
        narrowed = [
            tool | {schema: only(arguments)} if tool.get("name") == name else tool for tool in tools
        ]
        forced = {"tool_choice": choice} if num_results(body) < num_calls else {}
        return body | {"tools": narrowed, "temperature": 0} | forced

    return edit
