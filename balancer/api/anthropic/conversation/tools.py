"""Tools of all types, changes of tools within a conversation, and tool choices."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from .....shared.inference import NamedTool, ToolChoice
from .....shared.strict import STRICT
from ...common.request_checks import FunctionName

Json = dict[str, Any]


def _schema(properties: Json, *required: str) -> Json:
    return {"type": "object", "properties": properties, "required": list(required)}


def _commands(properties: Json, **required: tuple[str, ...]) -> Json:
    """Return an object with a `command`, and for each command the fields that it needs.

    All fields are also listed at the top level, since templates show models only those.
    """
    command = {"type": "string", "enum": list(required), "description": "What to do."}
    schema = _schema({"command": command, **properties}, "command")
    schema["anyOf"] = [
        {"properties": {"command": {"const": name}}, "required": list(fields)}
        for name, fields in required.items()
    ]
    return schema


def _text(description: str) -> Json:
    return {"type": "string", "description": description}


def _number(description: str) -> Json:
    return {"type": "integer", "description": description}


_BASH: Json = {
    "name": "bash",
    "description": (
        "Runs a command in a bash shell and returns its output. The shell keeps its state between "
        "calls; `restart` starts a new one."
    ),
    "parameters": _schema(
        {
            "command": _text("The command to run. Required unless `restart` is true."),
            "restart": {"type": "boolean", "description": "Whether to start a new shell."},
        }
    ),
}

_RANGE: Json = {
    "type": "array",
    "items": {"type": "integer"},
    "minItems": 2,
    "maxItems": 2,
    "description": "For `view`: the first and last line to show, counted from 1; -1 is the end.",
}

_EDITED: Json = {
    "path": _text("The absolute path of a file, or for `view` of a directory."),
    "view_range": _RANGE,
    "file_text": _text("For `create`: the text of the new file."),
    "old_str": _text("For `str_replace`: the text to replace, which must occur exactly once."),
    "insert_line": _number("For `insert`: the line after which to insert; 0 is the beginning."),
}


def _editor(name: str, insertion: str, others: Json, **more: tuple[str, ...]) -> Json:
    return {
        "name": name,
        "description": "Shows, creates and edits text files.",
        "parameters": _commands(
            {**_EDITED, **others},
            view=("path",),
            create=("path", "file_text"),
            str_replace=("path", "old_str"),
            insert=("path", "insert_line", insertion),
            **more,
        ),
    }


_FIRST_EDITOR = _editor(
    "str_replace_editor",
    "new_str",
    {"new_str": _text("For `str_replace`: the replacement. For `insert`: the text to insert.")},
    undo_edit=("path",),
)
_REPLACEMENT = _text("For `str_replace`: the replacement.")
_INSERTION = _text("For `insert`: the text to insert.")
_EDITOR = _editor(
    "str_replace_based_edit_tool",
    "insert_text",
    {"new_str": _REPLACEMENT, "insert_text": _INSERTION},
)

_MEMORY: Json = {
    "name": "memory",
    "description": (
        "Reads and writes files that outlast this conversation, below the directory `/memories`. "
        "View it before you begin a task, and note there what will be needed later."
    ),
    "parameters": _commands(
        {
            "path": _text("The path of a file or directory, for all commands but `rename`."),
            "view_range": _RANGE,
            "file_text": _text("For `create`: the text of the new file."),
            "old_str": _text("For `str_replace`: the text to replace."),
            "new_str": _REPLACEMENT,
            "insert_line": _number("For `insert`: the line after which to insert."),
            "insert_text": _INSERTION,
            "old_path": _text("For `rename`: the path as it is."),
            "new_path": _text("For `rename`: the path as it will be."),
        },
        view=("path",),
        create=("path", "file_text"),
        str_replace=("path", "old_str", "new_str"),
        insert=("path", "insert_line", "insert_text"),
        delete=("path",),
        rename=("old_path", "new_path"),
    ),
}

FUNCTIONS: Mapping[str, Json] = {
    "bash_20241022": _BASH,
    "bash_20250124": _BASH,
    "text_editor_20241022": _FIRST_EDITOR,
    "text_editor_20250124": _FIRST_EDITOR,
    "text_editor_20250429": _EDITOR,
    "text_editor_20250728": _EDITOR,
    "memory_20250818": _MEMORY,
}
"""The function for each type of tool."""


Name = Annotated[str, StringConstraints(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomTool:
    """A function that the client defines."""

    __pydantic_config__ = STRICT

    type: Literal["custom"] = "custom"
    name: FunctionName
    description: str | None = None
    input_schema: Json
    strict: bool | None = None

    def neutral(self) -> Json:
        """Return the tool in the form of a neutral request."""
        function: Json = {"name": self.name}
        if self.description is not None:
            function["description"] = self.description
        function["parameters"] = self.input_schema
        return _function(function, self.strict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTool:
    """A tool that Anthropic defines and the client runs; its type determines its input."""

    __pydantic_config__ = STRICT

    type: Literal[
        "bash_20241022",
        "bash_20250124",
        "text_editor_20241022",
        "text_editor_20250124",
        "text_editor_20250429",
        "text_editor_20250728",
        "memory_20250818",
    ]
    name: Name
    strict: bool | None = None

    def neutral(self) -> Json:
        """Return the tool in the form of a neutral request."""
        return _function({**FUNCTIONS[self.type], "name": self.name}, self.strict)


def _function(function: Json, strict: bool | None) -> Json:
    if strict:
        function["strict"] = True
    return {"type": "function", "function": function}


Tool = Annotated[CustomTool | ClientTool, Field(discriminator="type")]


def with_type(tool: object) -> object:
    """Return a tool of a body with its `type`, which clients may omit for their own functions."""
    if isinstance(tool, dict) and tool.get("type") is None:
        return {**tool, "type": "custom"}
    return tool


# ---- changes


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedReference:
    """A reference to a tool by name."""

    __pydantic_config__ = STRICT
    type: Literal["tool_reference"]
    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class McpReference:
    """A reference to the tools of an MCP server.

    Such tools are always omitted, so the reference has no effect.
    """

    __pydantic_config__ = STRICT
    type: Literal["mcp_tool_reference", "mcp_toolset_reference"]
    server_name: str
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A tool's definition. Types of tools that `tools` omits are omitted here too."""

    __pydantic_config__ = STRICT
    type: Literal["tool_definition"]
    definition: Tool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAddition:
    """A change that makes a tool available from this point on."""

    __pydantic_config__ = STRICT
    type: Literal["tool_addition"]
    tool: Annotated[NamedReference | McpReference | Definition, Field(discriminator="type")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRemoval:
    """A change that withdraws a tool from this point on."""

    __pydantic_config__ = STRICT
    type: Literal["tool_removal"]
    tool: Annotated[NamedReference | McpReference, Field(discriminator="type")]


ToolChange = Annotated[ToolAddition | ToolRemoval, Field(discriminator="type")]


def with_changes(
    tools: Iterable[CustomTool | ClientTool], changes: Iterable[ToolAddition | ToolRemoval]
) -> tuple[CustomTool | ClientTool, ...]:
    """Return the `tools` after all `changes`. A removed tool can be added again by its name."""
    changes = tuple(changes)
    if not changes:
        return tuple(tools)
    known = {tool.name: tool for tool in tools}
    now = dict(known)
    for change in changes:
        match change:
            case ToolAddition(tool=Definition(definition=CustomTool() | ClientTool() as tool)):
                known[tool.name] = now[tool.name] = tool
            case ToolAddition(tool=NamedReference(name=name)) if name in known:
                now[name] = known[name]
            case ToolRemoval(tool=NamedReference(name=name)):
                now.pop(name, None)
            case _:
                pass
    return tuple(now.values())


# ---- choices


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUseChoice:
    """A choice of whether the model calls tools."""

    __pydantic_config__ = STRICT

    type: Literal["auto", "any", "none"] = "auto"
    disable_parallel_tool_use: bool | None = None

    def neutral(self) -> ToolChoice:
        """Return the choice in the form of a neutral request."""
        return "required" if self.type == "any" else self.type


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedChoice:
    """The choice of one tool, which the model must call."""

    __pydantic_config__ = STRICT

    type: Literal["tool"]
    name: Annotated[str, StringConstraints(min_length=1, max_length=256)]
    disable_parallel_tool_use: bool | None = None

    def neutral(self) -> ToolChoice:
        """Return the choice in the form of a neutral request."""
        return NamedTool(name=self.name)


AnyChoice = Annotated[ToolUseChoice | NamedChoice, Field(discriminator="type")]
