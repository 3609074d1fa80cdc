"""OpenAI's older functions, converted to tools.

A function's result names the function, not the call, but chat templates need the id of the call. So
calls get ids, and results are matched to calls by name.
"""

from typing import Any, NamedTuple

from .....shared.errors import InvalidRequest
from ...common.field_names import FieldNames

Json = dict[str, Any]

FIELDS = ("functions", "function_call", "messages[].function_call", "messages[].role=function")
"""Fields that are turned into others here."""

NAMES = {
    "tools[].function": "functions[]",
    "tools": "functions",
    "tool_choice": "function_call",
    "messages[].tool_calls": "messages[].function_call",
}
"""Names of the fields of tools in a body with functions."""


class Modern(NamedTuple):
    """A body with tools, and whether the answer has to contain calls in the older form."""

    body: Json
    has_functions: bool


def with_tools(body: Json) -> Modern:
    """Return `body` with tools in place of functions. Raises `InvalidRequest`."""
    functions, choice = body.get("functions"), body.get("function_call")
    given = {name: value for name, value in body.items() if name not in FIELDS}
    if isinstance(messages := body.get("messages"), list):
        given["messages"] = _with_tool_calls(messages)
    if choice is not None and not functions:
        raise InvalidRequest("`function_call` needs `functions`", field="function_call")
    if not functions:
        return Modern(given, has_functions=False)
    if taken := next((name for name in ("tools", "tool_choice") if name in body), None):
        raise InvalidRequest(f"give only one of `functions` and `{taken}`", field="functions")
    if not isinstance(functions, list):
        raise InvalidRequest("`functions` must be a list", field="functions")
    given["tools"] = [{"type": "function", "function": each} for each in functions]
    given["parallel_tool_calls"] = False
    if choice is not None:
        given["tool_choice"] = _choice(choice)
    return Modern(given, has_functions=True)


def function_names(names: FieldNames) -> FieldNames:
    """Return `names` for a body with functions."""
    return names.also(NAMES)


def _choice(choice: object) -> object:
    match choice:
        case "none" | "auto":
            return choice
        case {"name": str()}:
            return {"type": "function", "function": choice}
        case _:
            raise InvalidRequest(
                "`function_call` must be 'none', 'auto' or an object with a `name`",
                field="function_call",
            )


def _with_tool_calls(messages: list[Any]) -> list[Any]:
    ids: dict[object, str] = {}
    made = []
    for place, message in enumerate(messages):
        made.append(message)
        if not isinstance(message, dict):
            continue
        if isinstance(call := message.get("function_call"), dict):
            id = ids[_key(call.get("name"))] = _id(place)
            rest = {name: value for name, value in message.items() if name != "function_call"}
            made[-1] = {**rest, "tool_calls": [{"id": id, "type": "function", "function": call}]}
        elif message.get("role") == "function":
            id = ids.get(_key(message.get("name")), _id(place))  # its call may be cut off
            made[-1] = {**message, "role": "tool", "tool_call_id": id}
    return made


def _id(place: int) -> str:
    return f"call{place:05}"  # nine characters, as some templates ask for


def _key(name: object) -> str:
    return name if isinstance(name, str) else ""
