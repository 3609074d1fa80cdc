"""The tools of a request, and the validation of calls."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .literals import as_json, as_text
from .schema_check import find_mismatch

_DEFINITIONS = ("$defs", "definitions")


@dataclass(frozen=True, slots=True)
class Function:
    """A callable function; `field` is the path of its `parameters` in the request."""

    name: str
    parameters: Mapping[str, Any]
    is_strict: bool
    field: str


class Tools:
    """The functions in a request's `tools`; entries without a function name are ignored."""

    def __init__(self, tools: Sequence[Mapping[str, Any]]) -> None:
        found = (_function(position, tool) for position, tool in enumerate(tools))
        self.functions = tuple(each for each in found if each is not None)
        self._schemas = {each.name: each.parameters for each in self.functions}

    def is_known(self, name: str) -> bool:
        """Return whether the request has this function."""
        return name in self._schemas

    def is_text(self, name: str, key: str) -> bool:
        """Return whether the function's argument `key` is a string, or has no schema."""
        schema = self._property(name, key)
        return not schema or schema.get("type") == "string"

    def value(self, name: str, key: str, written: str) -> str:
        """Return JSON for an argument that a model wrote as plain text.

        The text is parsed as JSON or Python, unless only a string fits the schema.
        """
        found, text = as_json(written), as_text(written)
        return text if not self._fits(name, key, found) and self._fits(name, key, text) else found

    def complaint(self, name: str, arguments: str) -> str | None:
        """Return what is wrong with a call; `None` if it is valid."""
        if name not in self._schemas:
            return f"there is no tool {name[:100]!r}"
        try:
            values = json.loads(arguments)
        except (ValueError, RecursionError):
            return f"the arguments for `{name}` are not valid JSON"
        if not isinstance(values, dict):
            return f"the arguments for `{name}` are not an object"
        if found := find_mismatch(values, self._schemas[name]):
            return f"`{found.place}` in the arguments for `{name}` {found.finding}"
        return None

    def _fits(self, name: str, key: str, value: str) -> bool:
        parameters = self._schemas.get(name, {})
        schema = {each: parameters[each] for each in _DEFINITIONS if each in parameters}
        schema["properties"] = {key: self._property(name, key)}
        try:
            found = json.loads(value)
        except RecursionError:  # the stack may be deeper here than at the first parse
            return True
        return find_mismatch({key: found}, schema) is None

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


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
