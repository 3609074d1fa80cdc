"""The tools a client named: what a call of one must look like, by the simple facts of its schema.

Checked are: a known name, arguments that are an object, required properties, and of each property
at the top its `type` and `enum`, and whether it is known where `additionalProperties` is false. A
whole JSON Schema is not checked here: this runs between two steps of a decoding batch, and a
schema is a program of the client's (patterns that take for ever, references that go in circles).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_TYPES: Mapping[str, tuple[type, ...]] = {
    "array": (list,),
    "boolean": (bool,),
    "integer": (int,),
    "null": (type(None),),
    "number": (int, float),
    "object": (dict,),
    "string": (str,),
}


@dataclass(frozen=True, slots=True)
class Function:
    """One that may be called; `field` says where its `parameters` stand in the request."""

    name: str
    parameters: Mapping[str, Any]
    is_strict: bool
    field: str


class Tools:
    """The functions of a request's `tools`; entries that name no function are passed over."""

    def __init__(self, tools: Sequence[Mapping[str, Any]]) -> None:
        found = (_function(position, tool) for position, tool in enumerate(tools))
        self.functions = tuple(each for each in found if each is not None)
        self._schemas = {each.name: each.parameters for each in self.functions}

    def is_known(self, name: str) -> bool:
        """Whether the client named such a function."""
        return name in self._schemas

    def is_text(self, name: str, key: str) -> bool:
        """Whether the function's argument `key` is a string, or nothing says what it is."""
        schema = self._property(name, key)
        return not schema or schema.get("type") == "string"

    def complaint(self, name: str, arguments: str) -> str | None:
        """What is wrong with a call; `None` if nothing is."""
        if name not in self._schemas:
            return f"there is no tool {name[:100]!r}"
        try:
            values = json.loads(arguments)
        except (ValueError, RecursionError):
            return f"the arguments for `{name}` are not valid JSON"
        if not isinstance(values, dict):
            return f"the arguments for `{name}` are not an object"
        return self._misfit(name, values)

    def _misfit(self, name: str, values: Mapping[str, Any]) -> str | None:
        schema = self._schemas[name]
        required = schema.get("required")
        for key in required if isinstance(required, list) else ():
            if key not in values:
                return f"the arguments for `{name}` lack `{key}`"
        known = _mapping(schema.get("properties"))
        for key, value in values.items():
            if key not in known and schema.get("additionalProperties") is False:
                return f"the arguments for `{name}` have an unknown `{key[:100]}`"
            if not _fits(value, self._property(name, key)):
                return f"`{key[:100]}` in the arguments for `{name}` is not what its schema says"
        return None

    def _property(self, name: str, key: str) -> Mapping[str, Any]:
        properties = _mapping(self._schemas.get(name, {}).get("properties"))
        return _mapping(properties.get(key))


def _function(position: int, tool: Mapping[str, Any]) -> Function | None:
    function = _mapping(tool.get("function"))
    within = "function." if function else ""
    function = function or tool
    name = function.get("name")
    if not isinstance(name, str) or not name:
        return None
    return Function(
        name,
        _mapping(function.get("parameters")),
        function.get("strict") is True,
        f"tools[{position}].{within}parameters",
    )


def _fits(value: object, schema: Mapping[str, Any]) -> bool:
    options = schema.get("enum")
    if isinstance(options, list) and value not in options:
        return False
    types = schema.get("type")
    wanted = [types] if isinstance(types, str) else types
    if not isinstance(wanted, list):
        return True
    return any(_is_a(value, each) for each in wanted)


def _is_a(value: object, name: object) -> bool:
    if not isinstance(name, str) or name not in _TYPES:
        return True  # it is not for us to say
    if isinstance(value, bool):
        return name == "boolean"
    if isinstance(value, float) and name == "integer":
        return value.is_integer()
    return isinstance(value, _TYPES[name])


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
