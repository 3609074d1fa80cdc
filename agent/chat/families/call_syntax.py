"""The notation of a family's calls, for a grammar that generates them.

Some words and signs are placeholders:

| placeholder | stands for |
| --- | --- |
| `NAME` | the function's name |
| `NUMBER` | some number |
| `KEY` | the argument's name |
| `TYPE` | the notation's name for the argument's type |
| `↵` | new lines, or none |
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..parsing.tagged_calls import Tags


@dataclass(frozen=True, slots=True)
class Members:
    """Arguments written one by one: `begin`, the value, `end`, then `after`.

    `between` separates two arguments. With `barred`, text is written without quotes and contains
    none of the `barred` strings. Without `barred`, text is JSON like other values. `types` maps
    JSON's types to the text for `TYPE`. `key` is a pattern that argument names must match.
    """

    begin: str
    end: str = ""
    after: str = ""
    between: str = ""
    barred: tuple[str, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    key: str = r'[^<>"\n]+'


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """The notation of all calls of an answer.

    `before` and `after` enclose all calls; `begin` and `end` enclose the arguments of each call;
    `between` separates two calls. Without `between` only one call is possible. If `is_quoted`, the
    name is written as in a JSON string. `opening` is the marker at the start of all calls. Without
    `opening`, an answer with calls begins with them, and an answer without calls matches the
    regular expression `text`.
    """

    begin: str
    end: str = ""
    between: str | None = None
    before: str = ""
    after: str = ""
    opening: str | None = None
    is_quoted: bool = True
    arguments: Members | Literal["json", "gemma"] = "json"
    text: str = r"[^{\[\s](.|\n)*"


JSON_CALLS = CallSyntax('{"name": "NAME", "arguments": ', "}", between=", ", before="[", after="]")
"""A list of calls as JSON, for forced calls of models whose own notation has no grammar here."""

JSON_IN_TAGS = CallSyntax(
    '<tool_call>\n{"name": "NAME", "arguments": ',
    "}\n</tool_call>",
    between="\n",
    opening="<tool_call>",
)
"""JSON with a name and arguments within `<tool_call>`, which several families write."""


def json_list(
    opening: str, after: str = "", *, begin: str = '{"name": "NAME", "arguments": '
) -> CallSyntax:
    """Return the syntax for a list of calls as JSON after the marker `opening`."""
    return CallSyntax(
        begin, "}", between=", ", before=f"{opening}[", after=f"]{after}", opening=opening
    )


def tagged_members(
    tags: Tags,
    *,
    key_end: str | None = None,
    line: str = "",
    after: str = "",
    types: Mapping[str, str] | None = None,
) -> Members:
    """Return the syntax for arguments in `tags`.

    `line` comes before a value's own tag, `after` comes after the value.
    """
    new_line = "\n" if tags.has_lines else ""
    start = f"{line}{tags.value_start}" if tags.value_start else ""
    return Members(
        begin=f"{tags.key_start}KEY{tags.key_end if key_end is None else key_end}{start}{new_line}",
        end=f"{new_line}{tags.value_end}",
        after=after,
        barred=(tags.value_end, tags.end, tags.key_start),
        types=types or {},
    )
