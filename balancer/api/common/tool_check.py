"""Checks the functions of a request before it is accepted.

In the notations of model families, a function's name may end at a space, a bracket or a quote, so
names must not have these. OpenAI's and Anthropic's APIs allow letters, digits, `_` and `-`. Names
of MCP servers may also have dots, slashes and colons.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, StringConstraints

from ....shared.errors import InvalidRequest
from ....shared.validation import echo
from .field_names import SAME_NAMES, FieldNames

MAX_NAME = 256
"""Longest name of a function, in characters."""

_NAME = re.compile(r"[\w.:/-]+", re.ASCII)
_RULE = "must have only letters a to z, digits and _ - . : /"


def _callable_name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise ValueError(_RULE)
    return name


FunctionName = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_NAME), AfterValidator(_callable_name)
]
"""A function's name."""


def check_tools(tools: Iterable[Mapping[str, Any]], names: FieldNames = SAME_NAMES) -> None:
    """Refuse a function that a template cannot show or a model cannot call.

    Raises `InvalidRequest`.

    `tools` come from a neutral request; `names` translates field names to the client's. The
    members of `function` may also be members of the tool itself. Tools of other types are left to
    the template.
    """
    for place, tool in enumerate(tools):
        if tool.get("type", "function") != "function":
            continue
        try:
            _check(tool, f"tools[{place}]")
        except InvalidRequest as error:
            raise names.renamed(error) from error


def _check(tool: Mapping[str, Any], place: str) -> None:
    if "function" in tool:
        place, function = f"{place}.function", tool["function"]
        _refuse_unless(isinstance(function, Mapping), place, "must be an object", function)
    elif "name" in tool:
        function = tool
    else:
        raise InvalidRequest(f"`{place}.function` is missing", field=f"{place}.function")
    if "name" not in function:
        raise InvalidRequest(f"`{place}.name` is missing", field=f"{place}.name")
    name, parameters = function["name"], function.get("parameters")
    _refuse_unless(isinstance(name, str), f"{place}.name", "must be a string", name)
    is_callable = len(name) <= MAX_NAME and _NAME.fullmatch(name) is not None
    _refuse_unless(is_callable, f"{place}.name", f"{_RULE}, at most {MAX_NAME} of them", name)
    is_schema = parameters is None or isinstance(parameters, Mapping)
    _refuse_unless(is_schema, f"{place}.parameters", "must be an object", parameters)


def _refuse_unless(is_right: bool, field: str, rule: str, value: object) -> None:
    if not is_right:
        raise InvalidRequest(f"`{field}` {rule}, not {echo(value)}", field=field)
