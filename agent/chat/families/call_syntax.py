"""How a family writes calls, for a grammar that has to say so.

In what is written some words and signs stand for others:

| in it | stands for |
| --- | --- |
| `NAME` | the function's name |
| `NUMBER` | some number |
| `KEY` | the argument's name |
| `TYPE` | what the notation calls its type |
| `↵` | new lines, or none |
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..parsing.tagged_calls import Tags


@dataclass(frozen=True, slots=True)
class Members:
    """Arguments one by one: `begin`, the value, `end`, then `after`; `between` two of them.

    Text stands as it is and holds none of `barred`; without those it is JSON, as other values are.
    `types` say for JSON's types what `TYPE` stands for. Of a name there may be `key` characters.
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
    """`before` all calls and `after` them, `begin` and `end` around the arguments of each.

    A name is written as in a JSON string where it is `quoted`. Without a `between` there can only
    be one call. `opening` is the marker that the whole begins with; without one, an answer with
    calls begins with them, and one without is as the regular expression `text` says.
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
"""A list of calls as JSON, for forced calls of models whose own notation cannot be written."""

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
    """A list of calls as JSON, after the marker `opening`."""
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
    """Arguments in `tags`. `line` comes before a value's own tag, `after` comes after the value."""
    new_line = "\n" if tags.has_lines else ""
    start = f"{line}{tags.value_start}" if tags.value_start else ""
    return Members(
        begin=f"{tags.key_start}KEY{tags.key_end if key_end is None else key_end}{start}{new_line}",
        end=f"{new_line}{tags.value_end}",
        after=after,
        barred=(tags.value_end, tags.end, tags.key_start),
        types=types or {},
    )
